"""The gate, held again: FP32 and the artifact on the evaluation samples."""

from __future__ import annotations

from typing import ClassVar

from quant.engine.bind import BASELINE
from quant.engine.summary import worst
from quant.validation.check import CHECKS, OfCandidate
from quant.validation.findings import Checked, Finding, skipped
from quant.validation.subject import Subject


@CHECKS.add
class Gate(OfCandidate):
    """The artifact passes the recipe's gates on evaluation data that were loaded anew."""

    kind: ClassVar[str] = "gate"
    title: ClassVar[str] = "it passes the gate on data loaded anew"
    order: ClassVar[int] = 80

    def look(self, subject: Subject) -> Checked:
        """Evaluate both again."""
        bound = subject.workshop.bound
        if subject.fault:
            return skipped("a fresh process cannot run it")
        if not bound.gates:
            _ = subject.measured
            return skipped("the recipe names no metric to judge by; the outputs are finite")
        verdicts = subject.verdicts
        told = {
            number: f"{v.baseline:.6g} → {v.value:.6g}, drop {v.drop:.4g} ({v.drop_lower:.4g} to {v.drop_upper:.4g}), allowed {v.limit:.4g}"
            for number, v in verdicts.items()
        }
        found = [Finding(kind="gate", where=bound.gates[n][0], what=f"{v.decision}: {told[n]}") for n, v in verdicts.items() if v.decision != "pass"]
        decision = worst([v.decision for v in verdicts.values()])
        said = "; ".join(f"{bound.gates[n][0]} {text}" for n, text in told.items())
        if subject.scheme == BASELINE and decision == "inconclusive":  # FP32 against itself: too few samples speak against nothing
            return Checked(status="ok", said=said)
        status = {"pass": "ok", "fail": "failed", "inconclusive": "inconclusive"}[decision]
        return Checked.model_validate({"status": status, "said": said, "findings": found})
