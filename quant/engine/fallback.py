"""What an audit means for a candidate: a layer that was planned in a format and runs in another is a failed run, not a surprise in production."""

from __future__ import annotations

from collections.abc import Sequence

from quant.core.documents import Audit, AuditRow, PrecisionPlan

UNKNOWN = "unknown"
"""What an audit says of a layer that the engine's graph does not show."""
_SHOWN = 3


def judge(audit: Audit, plan: PrecisionPlan, *, emulated: bool, allowed: bool) -> tuple[str, bool]:
    """What is to be said of layers that do not run as planned, and whether the candidate fails by it.

    A layer that the engine does not show is said, but proves nothing.

    Args:
        audit: What the engine runs.
        plan: What was planned.
        emulated: Whether the engine emulates the plan's format: then it runs another one by nature.
        allowed: Whether the recipe lets such a candidate pass.

    Example:
        >>> from quant.core.documents import LayerChoice
        >>> plan = PrecisionPlan(scheme="int8", base="int8", layers=(LayerChoice(layer="conv", op="Conv", format="int8", reason=""),))
        >>> row = AuditRow(layer="conv", planned="int8", runs="fp32", kernel="FusedConv", agrees=False)
        >>> judge(Audit(target="engine", scheme="int8", rows=(row,)), plan, emulated=False, allowed=False)
        ('1 of 1 layer planned in int8 runs in another format: conv (FusedConv)', True)
    """
    if emulated:
        return "", False
    planned = set(plan.quantized)
    wrong = [row for row in audit.disagreements if row.layer in planned]
    fallen, unknown = [row for row in wrong if row.runs != UNKNOWN], [row for row in wrong if row.runs == UNKNOWN]
    end = f"planned in {plan.base}"
    said = []
    if fallen:
        verb = "runs" if len(fallen) == 1 else "run"
        said.append(f"{_of(fallen, planned)} {end} {verb} in another format: {_listed(fallen)}" + (" (allowed by the recipe)" if allowed else ""))
    if unknown:
        verb = "is" if len(unknown) == 1 else "are"
        said.append(f"{_of(unknown, planned)} {end} {verb} not found in the engine's graph: {_listed(unknown)}")
    return "; ".join(said), bool(fallen) and not allowed


def _of(rows: Sequence[AuditRow], planned: set[str]) -> str:
    return f"{len(rows)} of {len(planned)} layer{'' if len(planned) == 1 else 's'}"


def _listed(rows: Sequence[AuditRow]) -> str:
    shown = ", ".join(f"{row.layer} ({row.kernel})" for row in rows[:_SHOWN])
    return shown if len(rows) <= _SHOWN else f"{shown} and {len(rows) - _SHOWN} more"
