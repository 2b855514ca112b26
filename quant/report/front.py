"""The Pareto front of a plan as a picture: predicted error over predicted cost, with what was measured and the schemes alone.

Errors differ by orders of magnitude, so their axis is logarithmic; an error of 0 (nothing is quantized) stands on its foot.
Only geometry is made here; `templates/front.svg` draws it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from quant.report.mixing import MixingRow
from quant.report.picture import Box, Tick

_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 20, 16, 50
_DECADES = 6
"""Decades of error at most; what is smaller stands at the foot."""
_MARGIN = 0.05
_MOST_STEPS = 6
_STEP_WIDTH = 90
"""Room for a number on the axis of costs."""


@dataclass(frozen=True)
class Dot:
    """A plan in the picture; `verdict` is `pass` or `fail` where it was measured, else empty."""

    x: float
    y: float
    name: str
    verdict: str = ""
    label: str = ""


@dataclass(frozen=True)
class Front:
    """The drawing, in its own units."""

    width: int
    height: int
    frame: Box
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    line: str
    plans: tuple[Dot, ...]
    measured: tuple[Dot, ...]
    uniform: tuple[Dot, ...]
    x_title: str
    description: str


def draw_front(row: MixingRow, *, width: int = 760, height: int = 360) -> Front | None:
    """The picture of one target's front; None where there are fewer than two plans to draw."""
    steps = [step for step in row.steps if step.action != "look"]
    points = [(p.cost, p.error) for p in (*row.front, *row.uniform)] + [(s.cost, s.measured) for s in steps]
    if len(set(points)) < 2:  # noqa: PLR2004 - a picture compares
        return None
    frame = Box(_LEFT, _TOP, width - _RIGHT, height - _BOTTOM)
    low, high = min(c for c, _ in points), max(c for c, _ in points)
    pad = _MARGIN * (high - low or abs(high) or 1.0)
    low, high = low - pad, high + pad
    shown = [e for _, e in points if e > 0]
    top = math.ceil(math.log10(max(shown))) if shown else 0
    foot = max(math.floor(math.log10(min(shown))), top - _DECADES) - 1 if shown else -1

    def x(cost: float) -> float:
        return frame.left + (cost - low) / (high - low) * (frame.right - frame.left)

    def y(error: float) -> float:
        level = min(max(math.log10(error), foot), top) if error > 0 else foot
        return frame.bottom - (level - foot) / (top - foot) * (frame.bottom - frame.top)

    plans = tuple(Dot(x(p.cost), y(p.error), f"{p.quantized} layers quantized, error {p.error:.3g}, cost {p.cost:.4g} {row.unit}") for p in row.front)
    measured = tuple(Dot(x(s.cost), y(s.measured), f"{s.told}: measured {s.measured:.3g}; {s.said}", "pass" if s.passes else "fail") for s in steps)
    uniform = tuple(Dot(x(p.cost), y(p.error), f"{p.name} alone: error {p.error:.3g}, cost {p.cost:.4g} {row.unit}", label=p.name) for p in row.uniform)
    return Front(
        width,
        height,
        frame,
        tuple(Tick(x(at), f"{at:.4g}") for at in _steps(low, high, min(_MOST_STEPS, (width - _LEFT - _RIGHT) // _STEP_WIDTH))),
        tuple(Tick(y(10.0**d) if d > foot else frame.bottom, f"1e{d}" if d > foot else "0") for d in range(foot, top + 1)),
        "L".join(f"{dot.x:.1f} {dot.y:.1f}" for dot in plans),
        plans,
        measured,
        uniform,
        f"predicted cost, {row.unit}{' (estimated)' if row.estimated else ''}",
        f"{len(plans)} plans of the predicted front; {len(measured)} were measured, of which {sum(d.verdict == 'pass' for d in measured)} pass.",
    )


def _steps(low: float, high: float, most: int = _MOST_STEPS) -> list[float]:
    """Round numbers between two ends.

    Example:
        >>> _steps(0.0, 10.0)
        [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough)
    first = math.ceil(low / step)
    return [n * step for n in range(first, math.floor(high / step) + 1)]
