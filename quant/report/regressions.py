"""What got worse from one run to another: what a release is stopped for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from quant.core.documents import Document
from quant.core.formats import FORMATS
from quant.report.document import Candidate, Report
from quant.report.words import count, drop, fixed, one_line, percent, size

_WORSE = {"pass": 0, "inconclusive": 1, "fail": 2}
_SIZE = 0.01
"""Share by which an artifact must have grown to be told: names and versions inside a file take a few bytes."""

Aspect = Literal["candidates", "verdict", "accuracy", "time", "size", "formats"]
ASPECTS: tuple[Aspect, ...] = get_args(Aspect)


class Regression(Document):
    """What got worse.

    Args:
        candidate: `scheme on target`.
        aspect: In what.
        what: How.
    """

    candidate: str
    aspect: Aspect
    what: str


def regressions(old: Report, new: Report) -> tuple[Regression, ...]:
    """What got worse, candidate by candidate, in the order of the old run.

    A drop has grown when it lies above the old one's upper confidence bound, and a time when the intervals of both ratios to FP32 do not
    meet; a size when it grew by more than 1 %; a format when a layer runs in more bits than before (by the audit, or the plan
    where there is none). A verdict is worse from pass over inconclusive to fail. What is new has nothing that it could be worse than.
    """
    after = {(c.scheme, c.target): c for c in new.candidates}
    found = []
    for candidate in old.candidates:
        name = f"{candidate.scheme} on {candidate.target}"
        for aspect, what in _worse(old, candidate, new, after.get((candidate.scheme, candidate.target))):
            found.append(Regression(candidate=name, aspect=aspect, what=what))
    return tuple(found)


def _worse(before: Report, old: Candidate, after: Report, new: Candidate | None) -> Iterator[tuple[Aspect, str]]:
    if new is None:
        yield "candidates", "is not among the candidates any more"
        return
    if old.verdict is not None and (new.verdict is None or _WORSE[new.verdict] > _WORSE[old.verdict]):
        yield "verdict", f"{old.word} → {new.word}"
    if old.drop is not None and old.drop_upper is not None and new.drop is not None and old.metric == new.metric and new.drop > old.drop_upper:
        unit, relative = (new.gates[0].unit, new.gates[0].verdict.relative) if new.gates else ("", False)
        told = [drop(value, unit, relative=relative) for value in (old.drop, new.drop, old.drop_upper)]
        yield "accuracy", f"the drop of {one_line(new.metric or 'the metric')} grew from {told[0]} to {told[1]}, beyond the upper bound of {told[2]}"
    times = [next((row for row in report.timings.latency if (row.scheme, row.target) == (old.scheme, old.target)), None) for report in (before, after)]
    if times[0] is not None and times[1] is not None and times[0].ratio_high < times[1].ratio_low:
        yield "time", f"{fixed(times[0].ratio)} → {fixed(times[1].ratio)} of FP32's, and their confidence intervals do not meet"
    if old.size_bytes and new.size_bytes and new.size_bytes > (1 + _SIZE) * old.size_bytes:
        yield "size", f"{size(old.size_bytes)} → {size(new.size_bytes)}, {percent(new.size_bytes / old.size_bytes - 1, 0)} more"
    wider = _wider(old, new)
    if wider:
        layer, was, now = wider[0]
        yield "formats", f"{count(len(wider), 'layer')} in more bits than before: {one_line(layer)} {was} → {now}" + (", …" if len(wider) > 1 else "")


def _wider(old: Candidate, new: Candidate) -> list[tuple[str, str, str]]:
    """(layer, format before, format now) of every layer that takes more bits now."""
    was, now = _formats(old), _formats(new)
    return [(layer, was[layer], f) for layer, f in now.items() if layer in was and _bits(f) > _bits(was[layer]) > 0]


def _formats(candidate: Candidate) -> dict[str, str]:
    """Layer -> the format that it runs in."""
    return {row.layer: row.runs for row in candidate.audit} or {choice.layer: choice.format for choice in candidate.plan}


def _bits(number_format: str) -> int:
    """Bits of a number; 0 where an audit could not tell the format."""
    return FORMATS[number_format].encoding.bits if number_format in FORMATS else 0
