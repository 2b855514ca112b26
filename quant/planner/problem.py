"""What is to be planned: effects, costs, what must move together, and what is wanted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from quant.core.costs import CostTable
from quant.core.registry import did_you_mean
from quant.errors import PlanError

ERROR = "error"
"""The name that the predicted error goes by among what can be minimized or bounded."""


class Effect(NamedTuple):
    """A predicted error, smaller is better, and its standard error."""

    value: float
    error: float = 0.0


@dataclass(frozen=True)
class Interaction:
    """Error that comes on top when two layers are both in certain formats; negative where one makes up for the other."""

    one: str
    one_formats: frozenset[str]
    other: str
    other_formats: frozenset[str]
    effect: float

    def applies(self, choices: Mapping[str, str]) -> bool:
        """Whether both layers are in such a format."""
        return choices[self.one] in self.one_formats and choices[self.other] in self.other_formats


@dataclass(frozen=True)
class Problem:
    """A choice of one format for each layer.

    Args:
        effects: Layer -> format that it may run in -> effect of that on the model's error, in graph order. Effects add up.
        costs: Name -> what layers cost in some unit (`time`, `size`, `bits`, …); each prices every format of `effects`.
        groups: Layers that share one format. A layer with a single possible format binds nobody.
        pins: Layer -> the format that it is kept in.
        families: Sets of formats of which one alone may appear in a plan: `({"int8"}, {"fp8"})`.
        interactions: Errors that do not add up.
        neighbours: Pairs of layers between which a change of format is a switch; layers that follow one another when empty.

    Raises:
        PlanError: Something names a layer or a format that is not there, or pins contradict groups.
    """

    effects: Mapping[str, Mapping[str, Effect]]
    costs: Mapping[str, CostTable] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    families: tuple[frozenset[str], ...] = ()
    interactions: tuple[Interaction, ...] = ()
    neighbours: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for layer, formats in self.effects.items():
            if not formats:
                raise PlanError("has no format to run in", where=f"layer {layer!r}")
            for name, effect in formats.items():
                if not math.isfinite(effect.value) or not 0 <= effect.error < math.inf:
                    raise PlanError(f"the effect of {name} is {effect.value} ± {effect.error}", where=f"layer {layer!r}")
        self._check_names()
        self._check_costs()

    def _check_names(self) -> None:
        named = [*itertools.chain(*self.groups), *self.pins, *itertools.chain(*self.neighbours)]
        for layer in (*named, *(n for i in self.interactions for n in (i.one, i.other))):
            if layer not in self.effects:
                raise PlanError(f"there is no layer {layer!r} to plan", hint=did_you_mean(layer, list(self.effects)))
        for layer, name in self.pins.items():
            if name not in self.effects[layer]:
                raise PlanError(f"cannot be kept in {name}", where=f"layer {layer!r}", hint=f"it can run in {', '.join(self.effects[layer])}")

    def _check_costs(self) -> None:
        if ERROR in self.costs:
            raise PlanError(f"no cost can be called {ERROR!r}", hint="that is what the predicted error goes by")
        for what, table in self.costs.items():
            for layer, formats in self.effects.items():
                for name in formats:
                    table.cost(layer, name)
            priced = [*(row.layer for row in table.layers), *(n for b in table.boundaries for n in (*b.readers, b.maker) if n is not None)]
            if strange := [layer for layer in priced if layer not in self.effects]:
                raise PlanError(f"{what} has a price of layer {strange[0]!r}, of which no effect is known", hint=did_you_mean(strange[0], list(self.effects)))

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of layers between which a change of format counts as a switch."""
        return self.neighbours or tuple(itertools.pairwise(self.effects))

    def error(self, choices: Mapping[str, str]) -> Effect:
        """The predicted error of `choices`, and its standard error.

        Example:
            >>> Problem({"a": {"int8": Effect(1.0, 0.3)}, "b": {"int8": Effect(2.0, 0.4)}}).error({"a": "int8", "b": "int8"})
            Effect(value=3.0, error=0.5)
        """
        effects = [formats[choices[layer]] for layer, formats in self.effects.items()]
        extra = math.fsum(i.effect for i in self.interactions if i.applies(choices))
        return Effect(math.fsum(e.value for e in effects) + extra, math.hypot(*(e.error for e in effects)))

    def switches(self, choices: Mapping[str, str]) -> int:
        """Between how many neighbours the format changes."""
        return sum(choices[a] != choices[b] for a, b in self.pairs)

    def units(self) -> tuple[Unit, ...]:
        """Layers that move together, each with the formats that all of them may have, in graph order.

        Raises:
            PlanError: Layers of a group have no format in common, or are kept in different ones.
        """
        leader = {layer: layer for layer in self.effects}

        def of(layer: str) -> str:
            while leader[layer] != layer:
                layer = leader[layer]
            return layer

        order = {layer: number for number, layer in enumerate(self.effects)}
        for group in self.groups:
            movable = [layer for layer in group if len(self.effects[layer]) > 1]
            for layer in movable[1:]:
                first, second = sorted((of(movable[0]), of(layer)), key=order.__getitem__)
                leader[second] = first
        members: dict[str, list[str]] = {}
        for layer in self.effects:
            members.setdefault(of(layer), []).append(layer)
        return tuple(self._unit(tuple(layers)) for layers in members.values())

    def _unit(self, layers: tuple[str, ...]) -> Unit:
        formats = tuple(name for name in self.effects[layers[0]] if all(name in self.effects[layer] for layer in layers))
        if not formats:
            raise PlanError(f"layers {', '.join(layers)} move together and have no format in common", hint="take one of them out of the group")
        kept = {self.pins[layer]: layer for layer in layers if layer in self.pins}
        if len(kept) > 1:
            (one, first), (other, second) = list(kept.items())[:2]
            raise PlanError(f"layers {first} and {second} move together, and are kept in {one} and in {other}", hint="keep both in one format")
        if kept and (name := next(iter(kept))) not in formats:
            raise PlanError(f"layers {', '.join(layers)} move together, and not all can be kept in {name}", hint=f"they can all run in {', '.join(formats)}")
        return Unit(layers, tuple(kept) or formats)


@dataclass(frozen=True)
class Unit:
    """Layers that share one format, and the formats that it may be."""

    layers: tuple[str, ...]
    formats: tuple[str, ...]


@dataclass(frozen=True)
class Goal:
    """What is wanted of a plan.

    Args:
        minimize: `error`, or the name of a cost.
        within: `error` or the name of a cost -> the most that it may be.
        tie: Plans whose cost exceeds the least by no more than this share are as good, when a cost is minimized.
        deviations: Plans whose error exceeds the least by no more than so many standard errors are as good, when the error is minimized.
        time_limit: Seconds for each program; the best plan found is given then, and said not to be proven. None: as long as it takes.

    Raises:
        PlanError: A bound is no number.
    """

    minimize: str = "time"
    within: Mapping[str, float] = field(default_factory=dict)
    tie: float = 0.01
    deviations: float = 1.0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name, most in self.within.items():
            if math.isnan(most):
                raise PlanError(f"the budget of {name} is {most}", hint="give a number")

    def check(self, problem: Problem) -> None:
        """Refuse names that `problem` has no numbers for.

        Raises:
            PlanError: There is no such cost.
        """
        known = (ERROR, *problem.costs)
        for name in (self.minimize, *self.within):
            if name not in known:
                raise PlanError(f"there are no numbers for {name!r}", hint=did_you_mean(name, known))


@dataclass(frozen=True)
class Solution:
    """The best choice of formats.

    Args:
        choices: Layer -> format.
        error: Its predicted error.
        costs: Name -> what it costs.
        switches: Between how many neighbours the format changes.
        proven: Whether nothing better exists, but for ties; otherwise the time ran out.
        least: What the minimized quantity would be at best, without regard to switches.
    """

    choices: Mapping[str, str]
    error: Effect
    costs: Mapping[str, float]
    switches: int
    proven: bool
    least: float

    def value(self, name: str) -> float:
        """The predicted error, or a cost by its name."""
        return self.error.value if name == ERROR else self.costs[name]

    @property
    def formats(self) -> frozenset[str]:
        """The formats that appear."""
        return frozenset(self.choices.values())
