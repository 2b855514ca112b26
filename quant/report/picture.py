"""Accuracy against latency as a picture: the drop with its confidence interval over the time ratio, and the gate's limit.

Only geometry is made here; `templates/picture.svg` draws it (and escapes every name). Labels take the free place nearest to
their mark, so that none lies on another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quant.core.documents import Verdict
from quant.report.document import Candidate, Report
from quant.report.rows import latency_of
from quant.report.sentence import title
from quant.report.words import clipped, drop_scale, limit, one_line, plain

_LETTER, _LINE = 7.2, 17.0
_MARK = 7.0
_MOST_NAMES = 12
_LONGEST_NAME, _LONGEST_TITLE = 30, 44
_COMPRESSED_FROM = 5.0


@dataclass(frozen=True)
class Box:
    """A rectangle in the picture's units."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two share any area."""
        return self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom


@dataclass(frozen=True)
class Tick:
    """A place on an axis and the number beside it."""

    at: float
    text: str


@dataclass(frozen=True)
class Mark:
    """A candidate in the picture.

    Args:
        number: Its number in the report.
        name: `scheme on target`.
        verdict: Word of its verdict; it decides shape and colour.
        x: Place of the mark.
        y: Place of the mark.
        top: Upper end of the confidence interval.
        bottom: Lower end of the confidence interval.
        left: Left end of the time ratio's interval.
        right: Right end of the time ratio's interval.
        label: Words beside it.
        label_box: Where the words stand; None when there was no room.
    """

    number: int
    name: str
    verdict: str
    x: float
    y: float
    top: float
    bottom: float
    left: float
    right: float
    label: str
    label_box: Box | None = None

    @property
    def leader(self) -> tuple[float, float] | None:
        """End of a thin line from the mark to its label; None when they stand side by side."""
        if self.label_box is None:
            return None
        x = min(max(self.x, self.label_box.left), self.label_box.right)
        y = min(max(self.y, self.label_box.top), self.label_box.bottom)
        return (x, y) if math.hypot(x - self.x, y - self.y) > _MARK + 9 else None


@dataclass(frozen=True)
class Picture:
    """The whole drawing, in its own units (pixels at full width)."""

    width: int
    height: int
    frame: Box
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    baseline_x: float
    baseline_y: float
    limit_y: float
    limit_text: str
    y_title: str
    compressed: bool
    description: str
    missing: tuple[str, ...]


def draw(report: Report, *, width: int = 760, height: int = 400, names: bool = True) -> Picture | None:
    """The picture of `report`; None when no candidate has both a time and a verdict.

    Args:
        report: The report.
        width: Width of the drawing.
        height: Height of the drawing.
        names: Whether marks carry names (when there are not too many), or numbers alone.
    """
    chosen = [(place, c) for place, c in enumerate(report.candidates, 1) if c.gates and c.latency_ratio is not None and c.emulated is None]
    if not chosen:
        return None
    gate = chosen[0][1].gates[0]
    scale, words = drop_scale(gate.unit, relative=gate.verdict.relative)
    upright = _upright([c.gates[0].verdict for _, c in chosen], scale, top=16, bottom=height - 48)
    frame = Box(36 + _LETTER * max(len(tick.text) for tick in upright.ticks), upright.top, width - 14, upright.bottom)
    sides = [_times(report, c) for _, c in chosen]
    x_most = max(1.0, *(right for _, right in sides)) * 1.06
    x_at = _axis(0.0, x_most, frame.left, frame.right)
    marks = [_mark(place, c, (x_at, upright.at), side) for (place, c), side in zip(chosen, sides, strict=True)]
    limit_y, zero = upright.at(gate.verdict.limit), (x_at(1.0), upright.at(0.0))
    what = f"{'Change' if gate.direction == 'same' else 'Drop'} of {one_line(gate.metric)}" + (f", {words}" if words else "")
    return Picture(
        width=width,
        height=height,
        frame=frame,
        x_ticks=tuple(Tick(x_at(v), plain(v)) for v in _ticks(0.0, x_most)),
        y_ticks=upright.ticks,
        marks=_labelled(marks, frame, names=names and len(marks) <= _MOST_NAMES, limit_y=limit_y, zero=zero),
        baseline_x=zero[0],
        baseline_y=zero[1],
        limit_y=limit_y,
        limit_text=f"allowed: {limit(gate.verdict, gate.unit)}",
        y_title=clipped(what, _LONGEST_TITLE),
        compressed=upright.compressed,
        description=_description([c for _, c in chosen], one_line(gate.metric)),
        missing=_missing(report),
    )


@dataclass(frozen=True)
class _Upright:
    """The vertical axis: `at` gives the place of a drop."""

    top: float
    bottom: float
    at: Callable[[float], float]
    ticks: tuple[Tick, ...]
    compressed: bool


def _upright(verdicts: Sequence[Verdict], scale: float, *, top: float, bottom: float) -> _Upright:
    """An axis for the drops; where some lie far beyond the limit it is nearly straight up to there, and logarithmic beyond."""
    allowed = verdicts[0].limit * scale
    shown = [0.0, allowed, *(v * scale for found in verdicts for v in (found.drop_lower, found.drop_upper))]
    compressed = allowed > 0 and max(abs(v) for v in shown) > _COMPRESSED_FROM * allowed

    def bent(value: float) -> float:
        return math.asinh(value / allowed) if compressed else value

    low, high = bent(min(shown)), bent(max(shown))
    room = (high - low) * 0.08 or 1.0
    low, high = low - room, high + room
    at = _axis(low, high, bottom, top)
    values = [v for v in _bent_ticks(allowed) if low <= bent(v) <= high] if compressed else _ticks(low, high)
    return _Upright(top, bottom, lambda drop: at(bent(drop * scale)), _apart([Tick(at(bent(v)), plain(v)) for v in values]), compressed)


def _description(chosen: Sequence[Candidate], metric: str) -> str:
    said = [f"{title(c)}: {c.latency_ratio:.2f} of FP32's time, {c.verdict or 'no verdict'}" for c in chosen]
    return f"Drop of {metric} with its confidence interval over the time of one request, FP32 being 1. " + "; ".join(said) + "."


def _missing(report: Report) -> tuple[str, ...]:
    found = []
    for c in report.candidates:
        if c.status != "measured":
            found.append(f"{title(c)} ({c.status})")
        elif c.emulated is not None:
            found.append(f"{title(c)} (emulated)")
        elif c.latency_ratio is None:
            found.append(f"{title(c)} (not timed)")
    return tuple(found)


def _times(report: Report, candidate: Candidate) -> tuple[float, float]:
    row = latency_of(report, candidate)
    ratio = candidate.latency_ratio
    assert ratio is not None
    return (row.ratio_low, row.ratio_high) if row else (ratio, ratio)


def _axis(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _ticks(low: float, high: float, most: int = 7) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * 0.999)
    return [round(i * step, 12) + 0.0 for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _bent_ticks(allowed: float) -> list[float]:
    up = [allowed] + [s * 10.0**p for p in range(-6, 9) for s in (1, 2, 5) if s * 10.0**p > 1.5 * allowed]
    return [*(-v for v in reversed(up)), 0.0, *up]


def _apart(ticks: Sequence[Tick], least: float = 15.0) -> tuple[Tick, ...]:
    """The ticks whose numbers do not touch."""
    kept: list[Tick] = []
    for tick in sorted(ticks, key=lambda t: (t.text != "0", abs(t.at))):
        if all(abs(tick.at - other.at) >= least for other in kept):
            kept.append(tick)
    return tuple(sorted(kept, key=lambda t: t.at))


def _mark(place: int, candidate: Candidate, axes: tuple[Callable[[float], float], Callable[[float], float]], times: tuple[float, float]) -> Mark:
    x_at, y_at = axes
    name, found = title(candidate), candidate.gates[0].verdict
    assert candidate.latency_ratio is not None
    return Mark(
        number=place,
        name=name,
        verdict=candidate.verdict or "measured",
        x=x_at(candidate.latency_ratio),
        y=y_at(found.drop),
        top=y_at(found.drop_upper),
        bottom=y_at(found.drop_lower),
        left=x_at(times[0]),
        right=x_at(times[1]),
        label=clipped(name, _LONGEST_NAME),
    )


def _labelled(marks: Sequence[Mark], frame: Box, *, names: bool, limit_y: float, zero: tuple[float, float]) -> tuple[Mark, ...]:
    """The marks with their labels in free places."""
    taken = [Box(m.x - _MARK, m.y - _MARK, m.x + _MARK, m.y + _MARK) for m in marks]
    taken += [Box(m.x - 3, m.top, m.x + 3, m.bottom) for m in marks]
    taken += [Box(m.left, m.y - 3, m.right, m.y + 3) for m in marks]
    taken.append(Box(frame.left, limit_y - 18, frame.right, limit_y + 3))  # the limit's line, and its words above it
    taken.append(Box(zero[0] - 22, zero[1] - _MARK, zero[0] + _MARK, zero[1] + 22))  # the baseline's mark and name
    done = []
    for mark in marks:
        label = mark.label if names else f"#{mark.number}"
        box = _free_place(mark, (len(label) * _LETTER, _LINE), frame, taken)
        if box is not None:
            taken.append(box)
        done.append(Mark(**{**vars(mark), "label": label, "label_box": box}))
    return tuple(done)


def _free_place(mark: Mark, extent: tuple[float, float], frame: Box, taken: Sequence[Box]) -> Box | None:
    width, height = extent
    xs = [mark.x + _MARK + 3, mark.x - _MARK - 3 - width, mark.x - width / 2]
    xs += [frame.left + 4 + i * 12 for i in range(int((frame.right - frame.left - width - 8) / 12) + 1)]
    ys = [mark.y - height / 2, mark.y - _MARK - 3 - height, mark.y + _MARK + 3]
    ys += [frame.top + 2 + i * 6 for i in range(int((frame.bottom - frame.top - height - 4) / 6) + 1)]
    places = [Box(x, y, x + width, y + height) for x in xs for y in ys]
    inside = [b for b in places if b.left >= frame.left + 2 and b.right <= frame.right - 2 and b.top >= frame.top and b.bottom <= frame.bottom]
    for box in sorted(inside, key=lambda b: _distance(mark, b)):
        if not any(box.overlaps(other) for other in taken):
            return box
    return None


def _distance(mark: Mark, box: Box) -> float:
    x, y = min(max(mark.x, box.left), box.right), min(max(mark.y, box.top), box.bottom)
    return math.hypot(x - mark.x, 1.5 * (y - mark.y))
