"""One row per candidate, in words: what every table (page, Markdown, terminal) shows."""

from __future__ import annotations

from dataclasses import dataclass

from quant.report.agreement import disagreement
from quant.report.audit import differing, not_found
from quant.report.document import Candidate, LatencyRow, Report
from quant.report.sentence import needed, title
from quant.report.words import NOTHING, count, decibels, drop, fixed, in_unit, limit, listed, looked_at, one_line, size, upper

ICONS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "not available": NOTHING, "not applicable": NOTHING, "not tried": NOTHING, "measured": "·"}
"""Sign of each verdict word, so that none is told by colour alone."""


@dataclass(frozen=True)
class Row:
    """A candidate as tables show it; every field is text, a dash where there is nothing.

    Args:
        number: Its place in the report, from 1.
        title: `scheme on target`.
        scheme: The scheme.
        target: The target.
        metric: Name of the first gate's metric.
        value: Value of that metric.
        drop: How much worse than FP32.
        bound: Upper bound of the drop.
        allowed: What the gate allows.
        verdict: `pass`, `fail`, `inconclusive`, `not available`, `not applicable`, `not tried`, or `measured` (no gate).
        notes: What must be said beside it: reasons, samples needed, emulated.
        time: Time over FP32's.
        time_interval: Its 95 % interval; empty when there is none.
        size: Size of the artifact.
        size_ratio: Size over FP32's.
        size_words: The same, as it is said beside the size; empty when there is none.
        cosine: Mean cosine to FP32.
        sqnr: SQNR.
    """

    number: int
    title: str
    scheme: str
    target: str
    metric: str
    value: str
    drop: str
    bound: str
    allowed: str
    verdict: str
    notes: tuple[str, ...]
    time: str
    time_interval: str
    size: str
    size_ratio: str
    size_words: str
    cosine: str
    sqnr: str

    @property
    def icon(self) -> str:
        """Sign of the verdict."""
        return ICONS[self.verdict]

    @property
    def kind(self) -> str:
        """The verdict as one word, for style sheets."""
        return self.verdict.replace(" ", "-")


def candidate_rows(report: Report) -> tuple[Row, ...]:
    """Every candidate of `report` in words."""
    return tuple(_row(report, candidate, place) for place, candidate in enumerate(report.candidates, 1))


def latency_of(report: Report, candidate: Candidate) -> LatencyRow | None:
    """Times of `candidate`; None when it was not timed, or has no speed of its own."""
    if candidate.emulated is not None:
        return None
    return next((row for row in report.timings.latency if (row.scheme, row.target) == (candidate.scheme, candidate.target)), None)


def _row(report: Report, candidate: Candidate, place: int) -> Row:
    gate = candidate.gates[0] if candidate.gates else None
    unit = gate.unit if gate else report.baseline.units.get(candidate.metric or "", "")
    relative = bool(gate and gate.verdict.relative)
    times = latency_of(report, candidate)
    close = candidate.fidelity
    return Row(
        number=place,
        title=title(candidate),
        scheme=one_line(candidate.scheme),
        target=one_line(candidate.target),
        metric=one_line(candidate.metric or NOTHING),
        value=NOTHING if candidate.value is None else in_unit(candidate.value, unit),
        drop=NOTHING if candidate.drop is None else drop(candidate.drop, unit, relative=relative),
        bound=NOTHING if candidate.drop_upper is None else upper(candidate.drop_upper, unit, relative=relative),
        allowed=NOTHING if gate is None else limit(gate.verdict, gate.unit),
        verdict=candidate.word,
        notes=_notes(candidate),
        time=_time(candidate),
        time_interval=f"{fixed(times.ratio_low)} to {fixed(times.ratio_high)}" if times else "",
        size=NOTHING if candidate.size_bytes is None else size(candidate.size_bytes),
        size_ratio=NOTHING if candidate.size_ratio is None else fixed(candidate.size_ratio),
        size_words=_size_words(candidate.size_ratio),
        cosine=NOTHING if close is None else "exact" if close.exact else fixed(close.cosine_mean, 4),
        sqnr=NOTHING if close is None else "exact" if close.exact else NOTHING if close.sqnr_db is None else decibels(close.sqnr_db),
    )


def _size_words(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{fixed(ratio)} times FP32" if ratio > 1 else f"{fixed(ratio)} of FP32"


def _time(candidate: Candidate) -> str:
    if candidate.emulated is not None:
        return "emulated"
    return NOTHING if candidate.latency_ratio is None else fixed(candidate.latency_ratio)


def _audited(candidate: Candidate) -> tuple[tuple[int, str], ...]:
    return (differing(candidate), "in another format than planned"), (not_found(candidate), "not found in the engine's graph")


def _notes(candidate: Candidate) -> tuple[str, ...]:
    found = []
    if candidate.reason or candidate.status != "measured":
        found.append(one_line(candidate.reason) or "no reason was given")
    found += [f"{one_line(g.title)}: {needed(g)}" for g in candidate.gates if g.verdict.decision == "inconclusive"]
    failed = [one_line(g.title) for g in candidate.gates[1:] if g.verdict.decision == "fail"]
    if failed:
        found.append(f"{listed(failed)} beyond the limit, too" if candidate.gates[0].verdict.decision == "fail" else f"{listed(failed)} beyond the limit")
    if not candidate.reason:  # where there is one, it says it
        found += [f"{count(n, 'layer')} {what}" for n, what in _audited(candidate) if n]
    if off := disagreement(candidate.agreement):
        found.append(off)
    early = [g.verdict for g in candidate.gates if (g.verdict.available or 0) > g.verdict.samples]
    if early:
        found.append(f"the evaluation ended early, after {looked_at(max(early, key=lambda v: v.samples))}")
    if candidate.repeats > 1:
        found.append(f"its outputs differ from run to run: each sample was run {candidate.repeats} times")
    if candidate.unaudited:
        found.append(f"not audited: {one_line(candidate.unaudited)}")
    if candidate.emulated is not None:
        found.append(f"emulated: {one_line(candidate.emulated)}")
    return tuple(found)
