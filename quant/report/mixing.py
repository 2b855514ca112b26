"""A plan that mixes formats: what was predicted, what was measured, and why each layer is in what it is in; and the same for people."""

from __future__ import annotations

from collections.abc import Sequence

from quant.core.documents import Document
from quant.core.shown import Chart, Series
from quant.report.words import NOTHING, count


class PlanStep(Document):
    """One plan that was measured as a whole.

    Args:
        action: Why it was measured: `front`, `interaction`, `give back`, `win speed`, `tidy`; `look`: it was judged on the evaluation samples.
        told: What it was tried for.
        quantized: Number of its layers that are quantized.
        predicted: Its error, as layers' effects add up.
        predicted_error: Standard error of that.
        measured: Its error as measured.
        measured_error: Standard error of that.
        cost: What it is predicted to cost.
        passes: Whether the gate would pass if the evaluation samples were like the search samples; of a look, whether it does pass.
        said: What the gate goes by.
    """

    action: str
    told: str
    quantized: int
    predicted: float
    predicted_error: float
    measured: float
    measured_error: float
    cost: float
    passes: bool
    said: str


class FrontPoint(Document):
    """A plan of the predicted front, or a scheme alone.

    Args:
        name: The scheme, where one format is everywhere; empty otherwise.
        error: Its predicted error.
        cost: Its predicted cost.
        quantized: Number of its layers that are quantized.
    """

    name: str = ""
    error: float
    cost: float
    quantized: int


class EffectRow(Document):
    """What one layer does to the outputs in one format, and what it costs there.

    Args:
        layer: Name of the layer.
        format: The format.
        value: The effect.
        standard_error: Of `value`.
        cost: What the layer costs in that format; None where there is no price.
    """

    layer: str
    format: str
    value: float
    standard_error: float
    cost: float | None = None


class LeftOut(Document):
    """A layer that is in more bits than it could be.

    Args:
        layer: Name of the layer.
        why: What that costs, what it saves, and why, in sentences.
    """

    layer: str
    why: tuple[str, ...]


class MixingRow(Document):
    """How the plan for one target was found.

    Args:
        target: The serving engine.
        formats: The formats that were mixed.
        measure: What errors are.
        estimator: How effects were found, and those of which formats otherwise.
        samples: Number of search samples that they were found on.
        cost: What costs are, and where they come from.
        unit: Unit of costs.
        estimated: Whether costs were calculated and not measured.
        ended: How the search ended, in one sentence.
        steps: All plans that were measured, in order.
        front: The predicted front, by rising cost.
        uniform: The schemes alone.
        effects: Layer by layer, what each format does.
        left_out: The layers in more bits than they could be, each with its reasons.
        notes: What else is to be said.
    """

    target: str
    formats: tuple[str, ...]
    measure: str
    estimator: str
    samples: int
    cost: str
    unit: str
    estimated: bool
    ended: str
    steps: tuple[PlanStep, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    uniform: tuple[FrontPoint, ...] = ()
    effects: tuple[EffectRow, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()


def step_rows(steps: Sequence[PlanStep]) -> tuple[tuple[str, ...], ...]:
    """(what was tried, layers quantized, predicted error, measured error, cost, passes, what the gate goes by) of each.

    Example:
        >>> step = PlanStep(action="front", told="plan 1 of 3 on the front", quantized=2, predicted=0.25, predicted_error=0.01,
        ...     measured=0.26, measured_error=0.02, cost=1.5, passes=True, said="accuracy drops by 0")
        >>> step_rows((step,))
        (('plan 1 of 3 on the front', '2', '0.25 ± 0.01', '0.26 ± 0.02', '1.5', 'yes', 'accuracy drops by 0'),)
    """
    return tuple(
        (
            s.told if s.action in {"front", "tidy"} else f"{s.action}: {s.told}",
            str(s.quantized),
            spread(s.predicted, s.predicted_error),
            spread(s.measured, s.measured_error),
            f"{s.cost:.4g}",
            "yes" if s.passes else "no",
            s.said or NOTHING,
        )
        for s in steps
    )


def spread(value: float, error: float) -> str:
    """A value with its standard error.

    Example:
        >>> spread(0.0123, 0.0004)
        '0.0123 ± 0.0004'
    """
    return f"{value:.3g} ± {error:.1g}"


def mixing_sentence(row: MixingRow) -> str:
    """How it was done, for people."""
    formats = ", ".join(row.formats)
    how = f"effects ({row.measure}) of {count(row.samples, 'search sample')} by {row.estimator}"
    return f"{row.ended} Mixed were {formats}; {how}; costs: {row.cost}{' (estimated)' if row.estimated else ''}, in {row.unit}."


def mixing_chart(row: MixingRow) -> Chart:
    """The predicted front with the schemes alone, and the plans that were measured: error over cost."""
    front = [p for p in row.front if p.error > 0]
    alone = [p for p in row.uniform if p.error > 0]
    measured = [s for s in row.steps if s.measured > 0]
    plans = Series("plans", [p.cost for p in front], [p.error for p in front], said=[f"{p.quantized} layers quantized" for p in front], joined=True)
    schemes = Series("one scheme everywhere", [p.cost for p in alone], [p.error for p in alone], said=[p.name for p in alone])
    steps = [
        Series(
            name,
            [s.cost for s in measured if s.passes is passes],
            [s.measured for s in measured if s.passes is passes],
            said=[f"{s.told}: {s.said}" for s in measured if s.passes is passes],
        )
        for name, passes in (("measured, passes", True), ("measured, fails", False))
    ]
    across = f"predicted cost, {row.unit}{' (estimated)' if row.estimated else ''}"
    return Chart(f"Plans on {row.target}", across, f"error of the outputs ({row.measure})", [s for s in (plans, schemes, *steps) if s.x], log="y")


def most_sensitive(row: MixingRow, most: int = 20) -> tuple[EffectRow, ...]:
    """The largest effects."""
    return tuple(sorted(row.effects, key=lambda e: (-e.value, e.layer, e.format))[:most])
