"""What an audit says of a candidate's layers: as planned, in another format, in FP32 because the format is emulated, or not to be seen."""

from __future__ import annotations

from typing import Literal

from quant.core.documents import AuditRow
from quant.report.document import Candidate
from quant.report.words import count, one_line

Finding = Literal["agrees", "differs", "emulated", "not found"]
_FLOATS = frozenset({"fp16", "bf16", "fp8"})
"""Formats that an engine without their arithmetic rounds to, and computes in FP32."""
_FULL = "fp32"
_UNKNOWN = "unknown"


def finding(candidate: Candidate, row: AuditRow) -> Finding:
    """What `row` of the audit of `candidate` means.

    Args:
        candidate: The candidate.
        row: One of its audit.
    """
    if row.agrees:
        return "agrees"
    if row.runs == _UNKNOWN:
        return "not found"
    return "emulated" if row.planned in _FLOATS and _by_nature(candidate) else "differs"


def differing(candidate: Candidate) -> int:
    """Number of layers that the engine runs in another format than planned, those left out that it emulates by nature."""
    return _number(candidate, "differs")


def not_found(candidate: Candidate) -> int:
    """Number of layers that the engine's graph does not show."""
    return _number(candidate, "not found")


def audit_sentences(candidate: Candidate) -> tuple[str, ...]:
    """The audit of `candidate` in words; nothing when there was none to be had."""
    if candidate.unaudited:
        return (f"Not audited: {one_line(candidate.unaudited).rstrip('.')}.",)
    if not candidate.audit:
        return ()
    said = []
    if emulated := _number(candidate, "emulated"):
        verb = "runs" if emulated == 1 else "run"
        said.append(f"Emulated: its {count(emulated, 'layer')} {verb} in FP32 here, as expected; it does not count against the verdict.")
    if wrong := differing(candidate):
        said.append(f"{count(wrong, 'layer')} of {len(candidate.audit):,} in another format than planned.")
    if unseen := not_found(candidate):
        said.append(f"{count(unseen, 'layer')} not found in the engine's graph.")
    return tuple(said) or (f"The engine runs every layer as planned ({count(len(candidate.audit), 'layer')}).",)


def _number(candidate: Candidate, wanted: Finding) -> int:
    return sum(finding(candidate, row) == wanted for row in candidate.audit)


def _by_nature(candidate: Candidate) -> bool:
    """Whether all of `candidate` that is planned in narrower floating point, and can be seen, runs in FP32, because the engine has no other arithmetic here.

    An engine that is built ahead of time is emulated for want of a device, too, but its audit counts: some of its layers then
    run as planned, or the reason says what fell back.
    """
    narrow = [row for row in candidate.audit if row.planned in _FLOATS and row.runs != _UNKNOWN]
    return candidate.emulated is not None and not candidate.reason and bool(narrow) and all(row.runs == _FULL for row in narrow)
