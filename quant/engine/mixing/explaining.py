"""Why layers are in more bits than they could be: what that costs, what it saves, and where the error comes from."""

from __future__ import annotations

from collections.abc import Mapping

from quant.core.sensitivity import SensitivityProfile
from quant.engine.mixing.ground import FLOAT, Ground
from quant.graph.layers import Layer
from quant.planner.problem import Problem
from quant.report.mixing import LeftOut

_FAR = 40.0
"""How many times the root mean square a range must reach to be called an outlier's."""


def left_out(ground: Ground, problem: Problem, best: Mapping[str, str], profile: SensitivityProfile, *, cost: str) -> tuple[LeftOut, ...]:
    """The layers of `best` that could be in fewer bits, each with its reasons, the one that saves most error first.

    Args:
        ground: What plans stand on.
        problem: What was planned.
        best: The plan.
        profile: What layers do to the outputs.
        cost: Name of the cost that was minimized.
    """
    cheapest = {layer: min(formats, key=lambda f: problem.costs[cost].cost(layer, f)) for layer, formats in problem.effects.items()}
    layers = {layer.name: layer for layer in ground.workshop.prepared.layers}
    rows = []
    for layer, chosen in best.items():
        fewer = [f for f in problem.effects[layer] if f not in {FLOAT, chosen}]
        if chosen != FLOAT or not fewer:
            continue
        lower = cheapest[layer] if cheapest[layer] != FLOAT else fewer[0]
        saved = problem.effects[layer][lower].value - problem.effects[layer][chosen].value
        why = _why(ground, problem, best, profile=profile, about=(layers[layer], lower, saved), cost=cost)
        rows.append((saved, LeftOut(layer=layer, why=tuple(why))))
    return tuple(row for _, row in sorted(rows, key=lambda pair: (-pair[0], pair[1].layer)))


def _why(ground: Ground, problem: Problem, best: Mapping[str, str], *, profile: SensitivityProfile, about: tuple[Layer, str, float], cost: str) -> list[str]:
    layer, lower, saved = about
    table, name = problem.costs[cost], layer.name
    more = table.total(best) - table.total({**best, name: lower})
    whole = sum(problem.effects[n][f].value for n, f in best.items()) + saved
    share = 100 * saved / whole if whole > 0 else 0.0
    price = f"{'cost' if more <= 0 else 'save'} {abs(more):.3g} {table.unit}"
    told = [f"In {lower} it would {price} and add {saved:.3g} to the error, {share:.0f} % of what there would be."]
    if more <= 0:
        told.append(f"{lower} is not cheaper here, with the changes of format around it.")
    told += _parts(profile, name, lower)
    told += _outlier(ground, layer)
    return told


def _parts(profile: SensitivityProfile, layer: str, number_format: str) -> list[str]:
    """Whether weights or activations are to blame."""
    if not (profile.knows(layer, number_format, "weight") and profile.knows(layer, number_format, "activation")):
        return []
    weight, activation = profile.effect(layer, number_format, "weight").value, profile.effect(layer, number_format, "activation").value
    whole = weight + activation
    if whole <= 0:
        return []
    what, hint = ("weights", "AdaRound, GPTQ or smaller blocks") if weight > activation else ("activations", "SmoothQuant or the range search")
    return [f"{100 * max(weight, activation) / whole:.0f} % of that comes from its {what}, which {hint} might help."]


def _outlier(ground: Ground, layer: Layer) -> list[str]:
    """Whether the range of what it reads is that of an outlier."""
    for place in layer.activations:
        value = layer.node.inputs[place]
        seen = ground.table.statistics.get(str(value.name)) if value is not None else None
        if value is None or seen is None or seen.rms == 0:
            continue
        top = max(abs(seen.minimum), abs(seen.maximum)) / seen.rms
        maker = value.producer()
        if maker is not None and maker.op_type == "Softmax":
            return ["It reads a softmax."]
        if top > _FAR:
            return [f"The range of what it reads ({value.name}) is {top:.0f} times its root mean square: an outlier."]
    return []
