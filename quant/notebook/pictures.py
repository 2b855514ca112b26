"""What an explorer draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from quant.core.shown import Chart, Series
from quant.core.shown.chart import COLOURS
from quant.notebook.layer import Choice, Histogram
from quant.notebook.state import State

if TYPE_CHECKING:
    import plotly.graph_objects as go

Order = Literal["largest effect", "graph order", "name"]
ORDERS: tuple[Order, ...] = ("largest effect", "graph order", "name")
_MOST = 40
_DIM = 0.45


def rows_of(state: State, *, order: Order, number_format: str, find: str = "") -> list[str]:
    """The layers to show, in order: those with `find` in their name that can be in the format (any, when it is empty)."""
    effects = {layer: {f: e.value for f, e in found.items() if f != "fp32"} for layer, found in state.study.problem.effects.items()}
    if number_format:
        effects = {layer: {number_format: found[number_format]} for layer, found in effects.items() if number_format in found}
    rows = [layer for layer, found in effects.items() if found and find.casefold() in layer.casefold()]
    if order == "largest effect":
        rows.sort(key=lambda layer: -max(effects[layer].values()))
    elif order == "name":
        rows.sort()
    return rows[:_MOST]


def sensitivity(state: State, rows: Sequence[str], formats: Sequence[str]) -> Chart:
    """The effects of some layers, with their standard errors."""
    effects, series = state.study.problem.effects, []
    for f in formats:
        mine = [layer for layer in rows if f in effects[layer]]
        errors = [effects[layer][f].error for layer in mine]
        said = [f"{layer}: {f} adds {effects[layer][f].value:.3g} ± {effects[layer][f].error:.1g}; now in {state.choices[layer]}" for layer in mine]
        series.append(Series(f, [effects[layer][f].value for layer in mine], mine, errors, errors, said))
    return Chart("Sensitivity of layers", f"added error ({state.study.profile.measure.replace('_', ' ')})", "", series, "bars")


def opacities(state: State, one: Series) -> list[float]:
    """Bars of what a plan takes stand out."""
    return [1.0 if state.choices[str(layer)] == one.name else _DIM for layer in one.y]


def front_chart(state: State) -> Chart:
    """The front, the schemes alone, what was measured, and the plan that is looked at: error over cost."""
    front, cost = state.front, state.cost
    floor = _floor(state)

    def shown(error: float) -> float:
        return max(error, floor)

    best = Series("best plans", [s.costs[cost] for s in front], [shown(s.error.value) for s in front], joined=True)
    best = replace(best, said=[f"{sum(f != 'fp32' for f in s.choices.values())} layers quantized, error {s.error.value:.3g}" for s in front])
    alone = [(f, state.prediction(state.study.everywhere(f))) for f in state.formats]
    uniform = Series("one format everywhere", [p.costs[cost].value for _, p in alone], [shown(p.error) for _, p in alone], said=[f for f, _ in alone])
    measured = [m for m in state.measured if m.found.error < 1]
    found = Series("measured", [m.predicted.costs[cost].value for m in measured], [shown(m.found.error) for m in measured])
    found = replace(found, low=[0.0] * len(measured), high=[m.found.standard_error for m in measured], said=[m.found.told for m in measured])
    now = state.prediction()
    here = Series("this plan", [now.costs[cost].value], [shown(now.error)], said=[f"predicted {now.error:.3g} ± {now.standard_error:.1g}"])
    price = now.costs[cost]
    across = f"predicted {cost}, {price.unit}{' (estimated)' if price.estimated else ''}"
    return Chart("Error over cost", across, f"error; {floor:.0e} stands for none", [best, uniform, found, here], log="y")


def _floor(state: State) -> float:
    """Where an error of nothing is drawn: a decade below the smallest."""
    errors = [s.error.value for s in state.front if s.error.value > 0]
    return 10.0 ** (math.floor(math.log10(min(errors))) - 1) if errors else 1e-12


def histogram_figure(title: str, found: Histogram | None, choices: Sequence[Choice] = (), *, most: int = 0) -> go.Figure:
    """Values counted, with the range of each calibrator over them; counts are drawn as logarithms, for outliers are few.

    Args:
        title: What they are.
        found: The counts; None draws nothing.
        choices: The ranges.
        most: How many ranges there is room for; lines that no range fills are not seen.
    """
    made = Chart(title, "", "values (logarithmic)", []).figure()
    edges, counts = (found.edges, found.counts) if found is not None else ((0.0, 1.0), ())
    middles = [(a + b) / 2 for a, b in pairwise(edges)] if found is not None else []
    made.add_bar(x=middles, y=list(counts), marker_color=COLOURS[0], name="values", showlegend=False, width=edges[1] - edges[0])
    top = max((*counts, 1))
    for place in range(max(most, len(choices))):
        choice = choices[place] if place < len(choices) else None
        ends = {"x": [choice.low, choice.low, None, choice.high, choice.high], "y": [0.5, top, None, 0.5, top]} if choice is not None else {"x": [], "y": []}
        used = choice is not None and choice.used
        line = {"color": COLOURS[(place + 1) % len(COLOURS)], "width": 3 if used else 1.6, "dash": "solid" if used else "dot"}
        name = choice.calibrator if choice is not None else ""
        made.add_scatter(**ends, mode="lines", name=name, line=line, hoverinfo="name+x", showlegend=choice is not None)
    made.update_layout(height=280, bargap=0, showlegend=bool(choices), margin={"b": 64 if choices else 36})
    made.update_yaxes(type="log", range=[-0.31, len(str(top)) + 0.1])
    return made
