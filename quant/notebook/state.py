"""What an explorer knows and decides, without anything to be seen: which layer is in which format, and what that is predicted to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from quant.core.registry import did_you_mean
from quant.data.load import RoleSamples
from quant.engine.mixing.ground import FLOAT
from quant.engine.mixing.study import Study
from quant.errors import PlanError
from quant.notebook.layer import LayerView, look
from quant.notebook.samples import sample_html
from quant.planner.front import front
from quant.planner.loop import Joint
from quant.planner.problem import Solution, Unit

_POINTS = 25
_SECONDS = 5.0


@dataclass(frozen=True)
class Price:
    """What a plan costs in one respect.

    Args:
        value: The cost.
        unit: Its unit.
        share: Over what FP32 costs.
        estimated: Whether it was calculated from a data sheet, and not from what the engine's kernels took.
    """

    value: float
    unit: str
    share: float
    estimated: bool


@dataclass(frozen=True)
class Prediction:
    """What a plan is predicted to do.

    Args:
        error: Error of the outputs, in the profile's measure.
        standard_error: Of `error`.
        costs: Name -> price.
        quantized: Number of layers in fewer bits.
        layers: Number of all layers.
    """

    error: float
    standard_error: float
    costs: Mapping[str, Price]
    quantized: int
    layers: int

    @property
    def decibels(self) -> float:
        """The error as a ratio of signal to noise, where it is a share of the outputs' square; infinite for none.

        Example:
            >>> Prediction(0.001, 0.0, {}, 1, 1).decibels
            30.0
        """
        return -10 * math.log10(self.error) if self.error > 0 else math.inf


@dataclass(frozen=True)
class Measurement:
    """A plan that was measured as a whole, beside what was predicted of it."""

    predicted: Prediction
    found: Joint


class State:
    """The plan that is being looked at.

    Args:
        study: Effects and costs.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.cost = study.cost
        self.measured: list[Measurement] = []
        self._views: dict[tuple[str, str], LayerView] = {}
        self._choices = dict(study.start or self.front[0].choices)

    @property
    def choices(self) -> Mapping[str, str]:
        """Layer -> format."""
        return dict(self._choices)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers, in graph order."""
        return tuple(self.study.problem.effects)

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that are mixed, the float one last."""
        return (*self.study.ground.titles, FLOAT)

    def formats_of(self, layer: str) -> tuple[str, ...]:
        """The formats that a layer, and those that move with it, may have.

        Raises:
            PlanError: There is no such layer.
        """
        return self._unit(layer).formats

    def together(self, layer: str) -> tuple[str, ...]:
        """The layers that move with a layer, itself among them."""
        return self._unit(layer).layers

    @cached_property
    def _units(self) -> dict[str, Unit]:
        return {layer: unit for unit in self.study.problem.units() for layer in unit.layers}

    def _unit(self, layer: str) -> Unit:
        if layer not in self._units:
            raise PlanError(f"there is no layer {layer!r}", hint=did_you_mean(layer, self.layers))
        return self._units[layer]

    def toggle(self, layer: str, number_format: str) -> tuple[str, ...]:
        """Put a layer, and those that move with it, into a format; gives the layers that changed.

        Raises:
            PlanError: There is no such layer, or it cannot be in that format.
        """
        unit = self._unit(layer)
        if number_format not in unit.formats:
            raise PlanError(f"layer {layer!r} cannot run in {number_format!r} here", hint=f"it can in {', '.join(unit.formats)}")
        changed = tuple(name for name in unit.layers if self._choices[name] != number_format)
        self._choices |= dict.fromkeys(unit.layers, number_format)
        return changed

    def take(self, choices: Mapping[str, str]) -> None:
        """Take a whole plan, as far as layers move together and are kept where the recipe keeps them: those stay as they are.

        Raises:
            PlanError: It names a layer that is not there.
        """
        for layer, number_format in choices.items():
            if number_format in self._unit(layer).formats:
                self.toggle(layer, number_format)

    @cached_property
    def _fronts(self) -> dict[str, tuple[Solution, ...]]:
        return {}

    @property
    def front(self) -> tuple[Solution, ...]:
        """The best plans, from the cheapest to the most accurate, in terms of the cost that is looked at."""
        if self.cost not in self._fronts:
            self._fronts[self.cost] = front(self.study.problem, cost=self.cost, points=_POINTS, time_limit=_SECONDS)
        return self._fronts[self.cost]

    @property
    def costs(self) -> tuple[str, ...]:
        """Names of the costs that there are."""
        return tuple(self.study.problem.costs)

    def look_at(self, cost: str) -> None:
        """Go by another cost.

        Raises:
            PlanError: There is none of that name.
        """
        if cost not in self.costs:
            raise PlanError(f"there is no cost {cost!r}", hint=did_you_mean(cost, self.costs))
        self.cost = cost

    def budget(self, error: float) -> Solution:
        """Take the cheapest plan of the front whose predicted error is `error` at most; the most accurate one where none is."""
        plan = next((s for s in self.front if s.error.value <= error), self.front[-1])
        self._choices = dict(plan.choices)
        return plan

    def everywhere(self, number_format: str) -> None:
        """Take the plan of one scheme alone."""
        self.take(self.study.everywhere(number_format))

    def prediction(self, choices: Mapping[str, str] | None = None) -> Prediction:
        """What the plan (or another) is predicted to do; nothing is run."""
        problem = self.study.problem
        asked = self._choices if choices is None else choices
        error = problem.error(asked)
        whole = dict.fromkeys(problem.effects, FLOAT)
        prices = {}
        for name, table in problem.costs.items():
            value, all_of_it = table.total(asked), table.total(whole)
            prices[name] = Price(value, table.unit, value / all_of_it if all_of_it > 0 else 1.0, table.estimated)
        return Prediction(error.value, error.error, prices, sum(f != FLOAT for f in asked.values()), len(asked))

    def measure(self) -> Measurement:
        """Measure the plan as a whole on the search samples, in its engine.

        Raises:
            RunError: The disk is full, or cannot be written.
        """
        found = Measurement(self.prediction(), self.study.measure(self._choices))
        if found not in self.measured:  # a button that is pressed twice
            self.measured.append(found)
        return found

    def save(self, path: Path | str) -> Path:
        """Write the plan as `quant plan` does; `quant apply` takes it.

        Raises:
            RunError: The file cannot be written.
        """
        told = self.prediction()
        last = next((m.found for m in reversed(self.measured) if m.predicted == told), None)
        head = f"{told.quantized} of {told.layers} layers quantized; predicted error {told.error:.3g}"
        self.study.save(path, self._choices, head=head + (f"; measured {last.error:.3g}: {last.told}" if last is not None else "; not measured"))
        return Path(path)

    def view(self, layer: str) -> LayerView:
        """A layer under the glass; a second look costs nothing."""
        self._unit(layer)
        chosen = self._choices[layer]
        judged = chosen if chosen != FLOAT else next((f for f in self.formats_of(layer) if f != FLOAT), FLOAT)
        if (layer, judged) not in self._views:
            self._views[layer, judged] = look(self.study, layer, number_format=judged)
        return self._views[layer, judged]

    def sample(self, position: int) -> str:
        """A search sample as HTML."""
        samples = self.study.closing.search.samples
        if not isinstance(samples, RoleSamples):
            return f"sample {position}"
        return sample_html(samples.record(position).values, samples.display(position))
