"""What an explorer says in words and tables, as HTML; every name and text is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence

from quant.core.shown import Table
from quant.core.shown.table import text
from quant.notebook.layer import Input, LayerView
from quant.notebook.state import Measurement, Prediction, Price, State
from quant.report.words import NOTHING, plain, size, small_share
from quant.report.words import milliseconds as ms

_CARD = "flex:1 1 118px;border:1px solid rgba(128,128,128,.45);border-radius:6px;padding:6px 10px"
_SMALL = "font-size:12px;opacity:.8"
_NUMBER = "font-size:17px;font-weight:600;line-height:1.35"
_GOOD, _BAD = "✓", "✗"


def prediction_html(state: State) -> str:
    """The plan in a few cards: what it is predicted to do."""
    told = state.prediction()
    cards = [_card("error of the outputs", f"{told.error:.3g} ± {told.standard_error:.1g}", _decibels(state, told))]
    cards += [_card(name, priced(price), f"{100 * price.share:.0f} % of FP32{', estimated' if price.estimated else ''}") for name, price in told.costs.items()]
    cards.append(_card("quantized", f"{told.quantized} of {told.layers}", "layers"))
    return f'<div role="status" aria-label="prediction" style="display:flex;flex-wrap:wrap;gap:8px;color:inherit">{"".join(cards)}</div>'


def _card(title: str, number: str, below: str) -> str:
    lines = ((_SMALL, title), (_NUMBER, number), (_SMALL, below))
    return f'<div style="{_CARD}">{"".join(map(_line, lines))}</div>'


def _line(of: tuple[str, str]) -> str:
    return f'<div style="{of[0]}">{text(of[1])}</div>'


def _decibels(state: State, told: Prediction) -> str:
    if state.study.profile.measure != "output_error":
        return f"predicted, {state.study.profile.measure}"
    return "predicted: the very outputs of FP32" if math.isinf(told.decibels) else f"predicted: {told.decibels:.1f} dB"


def priced(price: Price) -> str:
    """A cost with its unit.

    Example:
        >>> priced(Price(3 << 20, "bytes", 0.25, False)), priced(Price(1.25, "ms", 0.5, True)), priced(Price(8.5, "bits", 0.27, False))
        ('3.0 MiB', '1.25 ms', '8.5 bits')
    """
    match price.unit:
        case "bytes":
            return size(price.value)
        case "ms":
            return ms(price.value)
        case unit:
            return f"{plain(round(price.value, 3))} {unit}"


def measured_html(measured: Sequence[Measurement]) -> str:
    """The plans that were measured, the last first."""
    if not measured:
        return '<div style="opacity:.8;color:inherit">Nothing was measured yet.</div>'
    columns = ("", "layers quantized", "predicted error", "measured error", "on the search samples")
    rows = [
        (
            f"{_GOOD} passes" if m.found.passes else f"{_BAD} does not pass",
            m.predicted.quantized,
            f"{m.predicted.error:.3g} ± {m.predicted.standard_error:.1g}",
            f"{m.found.error:.3g} ± {m.found.standard_error:.1g}",
            m.found.told or NOTHING,
        )
        for m in reversed(measured)
    ]
    return Table("Measured", columns, rows).html()


def layer_html(state: State, view: LayerView) -> str:
    """A layer in words: its formats and what each does to the outputs."""
    effects = state.study.problem.effects[view.layer]
    table = state.study.problem.costs[state.cost]
    rows = [
        (f, "chosen" if f == state.choices[view.layer] else "", effects[f].value, effects[f].error, table.cost(view.layer, f))
        for f in state.formats
        if f in effects
    ]
    facts = {"operator": view.op}
    if view.weights is not None:
        facts["weight"] = " x ".join(map(str, view.weights.shape))
    others = [name for name in state.together(view.layer) if name != view.layer]
    if others:
        facts["moves together with"] = ", ".join(others)
    return Table(view.layer, ("format", "", "effect", "standard error", f"{state.cost}, {table.unit}"), rows, facts).html()


def weights_html(view: LayerView) -> str:
    """The channels of the weight that rounding hurts most."""
    if view.weights is None:
        return '<div style="opacity:.8;color:inherit">It multiplies two activations, and has no weight.</div>'
    rows = [(c.number, c.magnitude, _times(c.over), c.error) for c in view.weights.channels]
    return Table("Channels that rounding hurts most", ("channel", "largest weight", "over the median", "rounding error"), rows).html() if rows else ""


def input_html(state: State, read: Input) -> str:
    """What each calibrator makes of a tensor, its farthest channels and its farthest samples."""
    chosen = [(f"{c.calibrator}{' (of the recipe)' if c.used else ''}", c.low, c.high, small_share(c.clipped)) for c in read.choices]
    parts = [Table("Ranges", ("calibrator", "low", "high", "clipped"), chosen, {"values from": f"{read.samples} samples"}).html()]
    if read.channels:
        channels = [(c.number, c.magnitude, _times(c.over)) for c in read.channels]
        parts.append(Table("Channels that reach farthest", ("channel", "largest magnitude", "over the median"), channels).html())
    parts.append('<div style="font-weight:600;color:inherit">Samples that reach farthest</div>')
    rows = [f'<li style="margin:3px 0;overflow-wrap:anywhere"><b>{o.magnitude:.4g}</b> {state.sample(o.position)}</li>' for o in read.outliers]
    parts.append(f'<ul style="margin:2px 0;padding-left:18px;line-height:1.4;color:inherit">{"".join(rows)}</ul>')
    return "".join(parts)


def _times(over: float) -> str:
    return NOTHING if math.isinf(over) else f"{over:.3g} x"
