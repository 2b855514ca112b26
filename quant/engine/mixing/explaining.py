"""Why layers are in more bits than they could be: what that costs, what it saves, where the error comes from, and what might make it unnecessary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quant.core.costs import CostTable
from quant.core.sensitivity import SensitivityProfile
from quant.engine.mixing.ground import FLOAT, Ground
from quant.graph.layers import Layer
from quant.graph.model import constant
from quant.planner.moves import moved
from quant.planner.problem import Problem, Unit
from quant.report.mixing import LeftOut
from quant.report.words import count
from quant.stages.improve import Step

_FAR = 40.0
"""How many times the root mean square a range must reach to be called an outlier's, and the median channel's a channel's."""
_SIZE = "size"
_HELPS = {"weights": ("adaround", "bias-correction"), "activations": ("smoothquant", "range-search")}
"""Whose error it is -> transforms that are made for it."""


def left_out(ground: Ground, problem: Problem, best: Mapping[str, str], profile: SensitivityProfile, *, cost: str) -> tuple[LeftOut, ...]:
    """The layers of `best` that could be in fewer bits, each with its reasons, the one that saves most error first.

    Args:
        ground: What plans stand on.
        problem: What was planned.
        best: The plan.
        profile: What layers do to the outputs.
        cost: Name of the cost that was minimized.
    """
    layers = {layer.name: layer for layer in ground.workshop.prepared.layers}
    rows = []
    for unit in problem.units():
        fewer = [f for f in problem.effects[unit.layers[0]] if f not in {FLOAT, best[unit.layers[0]]}]
        open_to = [layer for layer in unit.layers if best[layer] == FLOAT and any(f != FLOAT for f in problem.effects[layer])]
        for layer in open_to if fewer else ():
            lower = min(fewer, key=lambda f: problem.costs[cost].cost(layer, f))
            found = _Out(ground, problem, best, profile, unit, layers[layer], lower, cost)
            rows.append((found.saved, LeftOut(layer=layer, why=tuple(found.why()))))
    return tuple(row for _, row in sorted(rows, key=lambda pair: (-pair[0], pair[1].layer)))


@dataclass(frozen=True)
class _Out:
    """One layer, the layers that it moves with, and the format that it could be in."""

    ground: Ground
    problem: Problem
    best: Mapping[str, str]
    profile: SensitivityProfile
    unit: Unit
    layer: Layer
    lower: str
    cost: str

    @property
    def saved(self) -> float:
        """Error that the layer alone would add."""
        formats = self.problem.effects[self.layer.name]
        return formats[self.lower].value - formats[self.best[self.layer.name]].value

    @property
    def _moves(self) -> list[str]:
        """The layers that would change with it, itself in front."""
        others = [layer for layer in self.unit.layers if layer != self.layer.name and self.lower in self.problem.effects[layer]]
        return [self.layer.name, *others]

    def why(self) -> list[str]:
        """All that is to be said, in sentences."""
        return [*self._price(), *self._kept(), *self._slow(), *self._parts(), *self._outliers()]

    def _price(self) -> list[str]:
        """What it would change, with the layers that move with it."""
        trial = moved(self.best, (Unit(tuple(self._moves), ()), self.lower))
        added = self.problem.error(trial).value - self.problem.error(self.best).value
        whole = self.problem.error(trial).value
        share = f", {100 * added / whole:.0f} % of what there would be" if whole > 0 else ""
        prices = [_change(self.problem.costs[name], self.best, trial) for name in dict.fromkeys((self.cost, _SIZE)) if name in self.problem.costs]
        told = [f"In {self.lower} it would {' and '.join(prices)}, and add {added:.3g} to the error{share}."]
        if len(self._moves) > 1:
            own = f", of which it adds {100 * self.saved / added:.0f} %" if added > 0 else ""
            told.append(f"That is with the {count(len(self._moves) - 1, 'layer')} whose format it shares{own}.")
        return told

    def _kept(self) -> list[str]:
        pinned = next((layer for layer in self.unit.layers if layer in self.problem.pins), None)
        if pinned is None:
            return []
        return ["The recipe keeps it so." if pinned == self.layer.name else f"The recipe keeps {pinned} so, whose format it shares."]

    def _slow(self) -> list[str]:
        """Whether it would not even be cheaper."""
        table = self.problem.costs[self.cost]
        own, more = table.cost(self.layer.name, FLOAT), table.cost(self.layer.name, self.lower)
        trial = moved(self.best, (Unit(tuple(self._moves), ()), self.lower))
        if more >= own:
            return [f"By itself it costs {more:.3g} {table.unit} in {self.lower}, and {own:.3g} as it is: too small to win."]
        if table.total(trial) >= table.total(self.best):
            return [f"{self.lower} is not cheaper here, with the changes of format around it."]
        return []

    def _parts(self) -> list[str]:
        """Whether weights or activations are to blame, and which transforms are made for that."""
        name, lower = self.layer.name, self.lower
        if not (self.profile.knows(name, lower, "weight") and self.profile.knows(name, lower, "activation")):
            return []
        parts = {"weights": self.profile.effect(name, lower, "weight").value, "activations": self.profile.effect(name, lower, "activation").value}
        whole = sum(parts.values())
        if whole <= 0:
            return []
        what = max(parts, key=lambda part: parts[part])
        return [f"{100 * parts[what] / whole:.0f} % of that comes from its {what}: {transforms(_HELPS[what], self.ground.base.story.steps, name)}."]

    def _outliers(self) -> list[str]:
        """What is unusual in what it reads, or in its weights."""
        return [*_reads(self.ground, self.layer), *_channel(self.layer)]


def _change(table: CostTable, best: Mapping[str, str], trial: Mapping[str, str]) -> str:
    more = table.total(best) - table.total(trial)
    return f"{'cost' if more <= 0 else 'save'} {abs(more):.3g} {table.unit}"


def transforms(kinds: Sequence[str], steps: Sequence[Step], layer: str) -> str:
    """What is known of transforms that are made for an error.

    Example:
        >>> kept = Step(transform="smoothquant", kept=True, before=0.2, after=0.1, reason="", layers={"fc": "by 4"})
        >>> off = Step(transform="range-search", kept=False, before=0.1, after=0.2, reason="")
        >>> transforms(("smoothquant", "range-search"), (kept, off), "fc")
        'smoothquant is in it already, range-search was tried and did not help'
        >>> transforms(("adaround",), (), "fc")
        'adaround might help'
    """
    known = {step.transform: step for step in steps}

    def said(kind: str) -> str:
        step = known.get(kind)
        if step is None:
            return f"{kind} might help"
        if not step.kept:
            return f"{kind} was tried and did not help"
        return f"{kind} is in it already" if layer in step.layers or not step.layers else f"{kind} left this layer alone"

    return ", ".join(map(said, kinds))


def _reads(ground: Ground, layer: Layer) -> list[str]:
    """Whether it reads a softmax, or a range that is an outlier's."""
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


def _channel(layer: Layer) -> list[str]:
    """Whether one output channel of its weights is far beyond the others, which a single scale for all of them does not bear."""
    if layer.weight is None or layer.channel_axis is None:
        return []
    weight = constant(layer.node.inputs[layer.weight])
    if weight is None or weight.ndim < 2:  # noqa: PLR2004 - a channel is a slice
        return []
    tops = np.abs(np.moveaxis(weight, layer.channel_axis, 0).reshape(weight.shape[layer.channel_axis], -1)).max(axis=1)
    middle = float(np.median(tops))
    worst = int(tops.argmax())
    if middle <= 0 or tops[worst] / middle <= _FAR:
        return []
    return [f"Output channel {worst} of its weights reaches {tops[worst] / middle:.0f} times as far as the median channel."]
