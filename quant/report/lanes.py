"""Pictures of one line each: times of artifacts, and how far rungs of a ladder are off; names stand above their lines.

Only geometry is made here; `templates/lanes.svg` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quant.report.document import LatencyRow, Report
from quant.report.ladder import Ladder, Rung
from quant.report.picture import Box, Tick
from quant.report.rows import ICONS
from quant.report.sentence import title
from quant.report.words import clipped, decibels, milliseconds, one_line

_TOP, _BOTTOM, _LANE = 8.0, 46.0, 46.0
_LEFT, _RIGHT = 34.0, 18.0
_STEPS = 7
_FLOOR = -140.0
"""Power, dB, that the picture begins with at the lowest: below it there is nothing but the rounding of FP32."""
_LETTER = 7.0
_LESS = "of a lower power than is drawn"


@dataclass(frozen=True)
class Span:
    """A piece of a lane, from one place to another; `kind` is its class of colour."""

    left: float
    right: float
    kind: str
    told: str


@dataclass(frozen=True)
class Lane:
    """One line.

    Args:
        y: Its middle.
        name: What it is of.
        sign: Sign of its verdict.
        kind: Class of colour.
        note: What is said at its end.
        spans: Its pieces, the widest first.
        ticks: Small uprights: (place, kind, what it is).
    """

    y: float
    name: str
    sign: str
    kind: str
    note: str
    spans: tuple[Span, ...] = ()
    ticks: tuple[tuple[float, str, str], ...] = ()


@dataclass(frozen=True)
class Lanes:
    """The drawing, in its own units."""

    width: int
    height: float
    frame: Box
    x_ticks: tuple[Tick, ...]
    x_title: str
    lanes: tuple[Lane, ...]
    rail: bool
    description: str


class _Axis:
    """From values to places."""

    def __init__(self, low: float, high: float, width: int) -> None:
        self.low, self.high, self.width = low, high, width

    def at(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return _LEFT + (inside - self.low) / (self.high - self.low) * (self.width - _LEFT - _RIGHT)

    def picture(self, lanes: Sequence[Lane], *, x_title: str, description: str, rail: bool) -> Lanes:
        bottom = _TOP + _LANE * len(lanes)
        frame = Box(_LEFT, _TOP, self.width - _RIGHT, bottom)
        ticks = tuple(Tick(self.at(value), f"{value:.6g}".replace("-", "\N{MINUS SIGN}")) for value in self.steps())
        return Lanes(self.width, bottom + _BOTTOM, frame, ticks, x_title, tuple(lanes), rail, description)

    def steps(self) -> list[float]:
        rough = (self.high - self.low) / (_STEPS if self.width > 500 else 4)  # noqa: PLR2004 - a phone has less room for numbers
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough * 0.999)
        return [n * step for n in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]

    def clip(self, name: str) -> str:
        return clipped(name, int((self.width - _LEFT - _RIGHT) / _LETTER) - 14)


def latency_lanes(report: Report, rows: Sequence[LatencyRow], *, width: int = 760) -> Lanes | None:
    """The times of artifacts on one axis; None when there is none that makes a claim about speed.

    Args:
        report: The report.
        rows: Times on one target.
        width: Width of the drawing.
    """
    emulated = {(c.scheme, c.target) for c in report.candidates if c.emulated is not None}
    shown = [row for row in rows if (row.scheme, row.target) not in emulated]
    if not shown:
        return None
    axis = _Axis(0.0, 1.04 * max(row.p99_ms for row in shown) or 1.0, width)
    words = {(c.scheme, c.target): c.word for c in report.candidates}
    lanes = [_times(row, axis, words.get((row.scheme, row.target), "measured"), _TOP + _LANE * at) for at, row in enumerate(shown)]
    said = "; ".join(f"{row.scheme}: half of the requests within {milliseconds(row.p50_ms)}, 99 % within {milliseconds(row.p99_ms)}" for row in shown)
    return axis.picture(lanes, x_title="time of one request, ms", description=one_line(f"{said}."), rail=False)


def _times(row: LatencyRow, axis: _Axis, word: str, top: float) -> Lane:
    quantiles = row.quantiles_ms
    spans: tuple[Span, ...] = ()
    if len(quantiles) == 21:  # noqa: PLR2004 - 0 %, 5 %, ... 100 %
        ends = ((0, 19, "whole", "from the fastest to 95 % of requests"), (1, 18, "most", "5 % to 90 %"), (5, 15, "half", "the middle half"))
        spans = tuple(
            Span(axis.at(quantiles[a]), axis.at(quantiles[b]), kind, f"{told}: {milliseconds(quantiles[a])} to {milliseconds(quantiles[b])}")
            for a, b, kind, told in ends
        )
    ticks = tuple((axis.at(v), kind, f"{kind}: {milliseconds(v)}") for v, kind in ((row.p50_ms, "p50"), (row.p90_ms, "p90"), (row.p99_ms, "p99")))
    return Lane(top + 30, axis.clip(one_line(row.scheme)), ICONS[word], word.replace(" ", "-"), milliseconds(row.p50_ms), spans, ticks)


@dataclass(frozen=True)
class Step:
    """How far something is off, as powers over that of the output, in dB; None where there is nothing to tell."""

    name: str
    word: str
    off: float | None
    noise: float | None
    limit: float | None
    note: str = ""


def run_steps(report: Report) -> tuple[Step, ...]:
    """Every candidate that was held to the plain meaning of its graph, by its worst output."""
    found = []
    for c in report.candidates:
        if c.agreement is None or c.agreement.agrees is None or c.agreement.worst is None:
            continue
        worst = c.agreement.worst
        word = "pass" if c.agreement.agrees else "fail"
        found.append(Step(title(c), word, worst.deviation_db, worst.noise_db, worst.limit_db, "" if worst.deviation_db is not None else _exactly(worst.agrees)))
    return tuple(found)


def _exactly(agrees: bool) -> str:  # noqa: FBT001 - one word for one answer
    return "exact" if agrees else "differs"


def ladder_steps(ladder: Ladder) -> tuple[Step, ...]:
    """Every rung, and how far it is off the rung before."""
    return tuple(_rung(rung) for rung in ladder.rungs)


def _rung(rung: Rung) -> Step:
    if rung.status != "ran":
        return Step(one_line(rung.name), "not available", None, None, None, rung.status)
    worst = rung.agreement.worst if rung.agreement is not None else None
    word = "measured" if rung.agreement is None or rung.agreement.agrees is None else "fail" if rung.parts else "pass"
    before = rung.to_before
    off = worst.deviation_db if worst is not None else None if before is None or before.sqnr_db is None else -before.sqnr_db
    noise = worst.noise_db if worst is not None else None
    note = "" if off is not None else "first" if not rung.before else "exact" if before is not None and before.exact else ""
    return Step(one_line(rung.name), word, off, noise, worst.limit_db if worst is not None else None, note)


def step_lanes(steps: Sequence[Step], *, width: int = 760) -> Lanes | None:
    """How far steps are off, on one axis of dB; None without steps."""
    if not steps:
        return None
    values = [v for step in steps for v in (step.off, step.noise, step.limit) if v is not None]
    low = max(_FLOOR, 20.0 * math.floor((min(values, default=-100.0) - 5) / 20))
    axis = _Axis(low, max(0.0, 20.0 * math.ceil(max(values, default=0.0) / 20)), width)
    lanes = [_off(step, axis, _TOP + _LANE * at) for at, step in enumerate(steps)]
    said = "; ".join(f"{step.name}: {decibels(step.off) if step.off is not None else step.note or 'nothing to tell'}" for step in steps)
    return axis.picture(lanes, x_title="error over the power of the output, dB", description=one_line(f"{said}."), rail=True)


def _off(step: Step, axis: _Axis, top: float) -> Lane:
    spans: tuple[Span, ...] = ()
    ticks = []
    if step.off is not None:
        beyond = f" ({_LESS})" if step.off < axis.low else ""
        spans = (Span(axis.at(axis.low), axis.at(step.off), "off", f"off by {decibels(step.off)}{beyond}"),)
    ticks += [(axis.at(step.noise), "noise", f"noise of the format: {decibels(step.noise)}")] if step.noise is not None else []
    ticks += [(axis.at(step.limit), "limit", f"limit: {decibels(step.limit)}")] if step.limit is not None else []
    return Lane(top + 30, axis.clip(step.name), ICONS[step.word], step.word.replace(" ", "-"), step.note or decibels(step.off or 0.0), spans, tuple(ticks))
