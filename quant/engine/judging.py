"""An artifact on the evaluation samples: what it says, what the engine runs, and the verdict."""

from __future__ import annotations

from collections.abc import Callable

from quant.core.documents import PrecisionPlan
from quant.engine.agreeing import agreement
from quant.engine.candidates import Baseline, Built, Workshop
from quant.engine.fallback import judge
from quant.engine.gating import gate_candidate, slices_of
from quant.engine.summary import Outcome
from quant.errors import QuantError, RunError


def judged(
    workshop: Workshop, build: Callable[[], Built], reference: Baseline, *, scheme: str, target: str, plan: PrecisionPlan, emulated: str | None
) -> Outcome:
    """Build a candidate and judge it. What the FP32 model has shown to be in order can fail in the candidate alone: then it fails, and others go on.

    Args:
        workshop: What all candidates share.
        build: Writes the artifact.
        reference: FP32 on the evaluation samples.
        scheme: Title of the scheme.
        target: Title of the target.
        plan: What was planned, to hold the engine to.
        emulated: Why the engine has no speed of its own for the format here.

    Raises:
        RunError: The disk is full, or cannot be written.
    """
    built: Built | None = None
    try:
        built = build()
        measured = workshop.evaluate(built, reference)
        audit = workshop.audit(built)
        agreed = agreement(workshop, built)
        verdicts = gate_candidate(workshop, built, reference.predictions, measured.predictions)
        slices = slices_of(workshop, built, reference.predictions, measured.predictions)
    except RunError:
        raise
    except QuantError as error:
        return Outcome(scheme, target, built, emulated=emulated, status="failed", reason=one_line(error), fails=True)
    engine = workshop.bound.targets[target]
    by_nature = emulated is not None and not engine.ahead_of_time
    reason, fails = judge(audit, plan, emulated=by_nature, allowed=engine.options.allow_fallback)
    return Outcome(scheme, target, built, measured, audit, verdicts, emulated, reason=reason, fails=fails, agreement=agreed, slices=slices)


def one_line(error: QuantError) -> str:
    """What is wrong, without the place and the hint, which speak of a recipe that need not be wrong."""
    return " ".join(error.what.split())
