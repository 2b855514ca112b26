"""The closed loop: what was predicted is measured, all layers at once, until the cheapest plan is found that holds up.

Plans of the front are tried, from the cheapest on, by halving. Where a plan's error is more than its layers' errors add up to,
the two layers that do it are looked for by halving, too, and the prediction is corrected. Then layers are given back one by one
from the dearest plan that failed, and at last layers of the best plan are tried in cheaper formats.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from quant.core.documents import HIGHER_PRECISION
from quant.planner.front import front
from quant.planner.moves import Choices, Move, best_move, moved, named, quantizes
from quant.planner.problem import ERROR, Effect, Goal, Interaction, Problem, Solution, Unit
from quant.planner.solve import InfeasibleError, solve

Action = Literal["front", "interaction", "give back", "win speed", "tidy", "look"]


class Joint(NamedTuple):
    """What a measurement of a whole plan said.

    Args:
        error: The measure that effects are predicted in.
        standard_error: Of `error`.
        passes: Whether the plan is good enough.
        told: Why, in a few words.
    """

    error: float
    standard_error: float
    passes: bool
    told: str = ""


@dataclass(frozen=True)
class Step:
    """One plan that was measured.

    Args:
        action: Why it was.
        choices: Layer -> format.
        predicted: Its error as predicted at that time.
        cost: What it costs.
        joint: What was measured.
        told: What it was tried for, in a few words.
    """

    action: Action
    choices: Choices
    predicted: Effect
    cost: float
    joint: Joint
    told: str


@dataclass(frozen=True)
class Bounds:
    """How long the loop may go on.

    Args:
        points: Plans of the front.
        refits: How many pairs of layers that do not add up are looked for.
        returns: How many layers are given back, one at a time.
        wins: How many layers of the best plan are tried in a cheaper format.
        deviations: By how many standard errors a measured error must exceed the predicted one to be looked into.
        excess: And by what share of it.
    """

    points: int = 25
    refits: int = 2
    returns: int = 8
    wins: int = 8
    deviations: float = 2.0
    excess: float = 0.25


@dataclass(frozen=True)
class Closed:
    """How the loop ended.

    Args:
        best: The cheapest plan that passed; None when none did that quantizes anything.
        steps: All that was measured, in order.
        front: The predicted front, as corrected.
        problem: What was planned, with the interactions that were found.
        in_time: Whether it ended by itself; otherwise its time was over.
    """

    best: Choices | None
    steps: tuple[Step, ...]
    front: tuple[Solution, ...]
    problem: Problem
    in_time: bool


def close(
    problem: Problem, measure: Callable[[Choices], Joint], *, cost: str = "time", bounds: Bounds | None = None, over: Callable[[], bool] = bool
) -> Closed:
    """Find the cheapest plan that passes when it is measured.

    Args:
        problem: Predicted effects and costs.
        measure: Measures a plan as a whole. It is asked once for each plan.
        cost: Name of the cost that is to be least.
        bounds: How long to go on.
        over: Whether the time is over: no further plan is measured then.

    Raises:
        PlanError: There is no such cost, or the problem contradicts itself.
    """
    return _Loop(problem, measure, cost, bounds or Bounds(), over).run()


class _OverError(Exception):
    """No time is left."""


class _Loop:
    def __init__(self, problem: Problem, measure: Callable[[Choices], Joint], cost: str, bounds: Bounds, over: Callable[[], bool]) -> None:
        self.problem, self.cost, self.bounds = problem, cost, bounds
        self._measure, self._over = measure, over
        self._found: dict[tuple[str, ...], Joint] = {}
        self._refits = 0
        self.steps: list[Step] = []
        self.plans: tuple[Solution, ...] = ()

    def run(self) -> Closed:
        """All phases, as far as time goes."""
        in_time = True
        try:
            failed = self._halve()
            if failed is not None:
                self._give_back(failed)
            if (best := self.best) is not None:
                self._win(best)
            if (best := self.best) is not None:
                self._tidy(best)
        except _OverError:
            in_time = False
        if not self.plans:
            self.plans = front(self.problem, cost=self.cost, points=self.bounds.points)
        return Closed(self.best, tuple(self.steps), self.plans, self.problem, in_time)

    @property
    def best(self) -> Choices | None:
        """The cheapest plan that passed."""
        passed = [step for step in self.steps if step.joint.passes and step.action != "interaction"]
        return min(passed, key=lambda step: (step.cost, step.predicted.value)).choices if passed else None

    def _try(self, action: Action, choices: Choices, told: str) -> Joint:
        key = tuple(choices.values())
        if key not in self._found:
            if self._over():
                raise _OverError
            self._found[key] = self._measure(choices)
            self.steps.append(Step(action, dict(choices), self.problem.error(choices), self._price(choices), self._found[key], told))
        return self._found[key]

    def _price(self, choices: Choices) -> float:
        return self.problem.costs[self.cost].total(choices)

    def _halve(self) -> Choices | None:
        """The cheapest plan of the front that passes is looked for; gives the dearest below it that failed, None if there is none."""
        while True:
            self.plans = front(self.problem, cost=self.cost, points=self.bounds.points)
            failed, passed = -1, len(self.plans) - 1
            if not quantizes(self.plans[passed].choices):
                pass  # nothing is quantized: that is the FP32 model, which passes
            elif not self._passes(passed):
                return self.plans[passed].choices
            middle = 0
            while failed + 1 < passed:
                if self._passes(middle):
                    passed = middle
                else:
                    failed = middle
                    if self._refit(self.plans[middle].choices):
                        break
                middle = (failed + passed) // 2
            else:
                return self.plans[failed].choices if failed >= 0 else None

    def _passes(self, number: int) -> bool:
        return self._try("front", self.plans[number].choices, f"plan {number + 1} of {len(self.plans)} on the front").passes

    def _refit(self, choices: Choices) -> bool:
        """Whether the error of `choices` was not what was predicted, and the pair of layers was found that is to blame."""
        if self._refits >= self.bounds.refits or not self._exceeds(choices):
            return False
        self._refits += 1
        units = [unit for unit in self.problem.units() if choices[unit.layers[0]] not in HIGHER_PRECISION]
        base = {layer: _highest(formats) for layer, formats in self.problem.effects.items()}
        half = (self._found[tuple(choices.values())].error - self.problem.error(choices).value) / 2

        def shown(kept: list[Unit]) -> bool:
            part = {**base, **_kept(kept, choices)}
            joint = self._try("interaction", part, f"{len(kept)} of {len(units)} groups quantized, to find those whose errors do not add up")
            return joint.error - self.problem.error(part).value > half

        second = _first(len(units), lambda n: shown(units[: n + 1]))
        if second is None:
            return False
        if shown([units[second]]):
            self._correct(units[second], choices, self._found[tuple({**base, **_kept([units[second]], choices)}.values())])
            return True
        first = _first(second, lambda n: shown([*units[: n + 1], units[second]]))
        if first is None:
            return False
        pair = [units[first], units[second]]
        one, other = (unit.layers[0] for unit in pair)
        both = {**base, **_kept(pair, choices)}
        extra = self._try("interaction", both, f"{one} and {other} alone").error - self.problem.error(both).value
        if extra <= 0:
            return False
        found = Interaction(one, frozenset({choices[one]}), other, frozenset({choices[other]}), extra)
        self.problem = dataclasses.replace(self.problem, interactions=(*self.problem.interactions, found))
        return True

    def _correct(self, unit: Unit, choices: Choices, alone: Joint) -> None:
        """A group that alone does more than was predicted gets the effect that was measured, shared by its layers."""
        effects = {layer: dict(formats) for layer, formats in self.problem.effects.items()}
        for layer in unit.layers:
            effects[layer][choices[layer]] = Effect(alone.error / len(unit.layers), alone.standard_error / len(unit.layers))
        self.problem = dataclasses.replace(self.problem, effects=effects)

    def _exceeds(self, choices: Choices) -> bool:
        """Whether the measured error is more than predicted, beyond what is uncertain."""
        joint, predicted = self._found[tuple(choices.values())], self.problem.error(choices)
        more = joint.error - predicted.value
        return more > self.bounds.deviations * math.hypot(joint.standard_error, predicted.error) and more > self.bounds.excess * predicted.value

    def _give_back(self, choices: Choices) -> None:
        """Give layers back, the one first that recovers most for the speed it costs, until the plan passes or costs as much as one that does."""
        most = self._price(self.best) if self.best is not None else math.inf
        for _ in range(self.bounds.returns):
            move = self._best_move(choices, back=True)
            if move is None:
                return
            unit, number_format = move
            choices = moved(choices, move)
            if self._price(choices) >= most or not quantizes(choices):
                return
            if self._try("give back", choices, f"{named([unit])} back to {number_format}").passes:
                return

    def _win(self, choices: Choices) -> None:
        """Try layers of the best plan in cheaper formats, the one first that wins most for the error it adds."""
        refused: set[Move] = set()
        for _ in range(self.bounds.wins):
            move = self._best_move(choices, back=False, refused=refused)
            if move is None:
                return
            unit, number_format = move
            trial = moved(choices, move)
            if self._try("win speed", trial, f"{named([unit])} in {number_format}").passes:
                choices = trial
            else:
                refused.add(move)

    def _best_move(self, choices: Choices, *, back: bool, refused: Collection[Move] = ()) -> Move | None:
        return best_move(self.problem, choices, cost=self.cost, back=back, refused=refused)

    def _tidy(self, choices: Choices) -> None:
        """A plan with fewer changes of format that is as good as the best one, if there is one."""
        goal = Goal(minimize=self.cost, within={ERROR: self.problem.error(choices).value})
        try:
            found = solve(self.problem, goal)
        except InfeasibleError:  # by a rounding step: the best plan itself keeps to this budget, and stays
            return
        if quantizes(found.choices) and found.switches < self.problem.switches(choices) and found.costs[self.cost] <= self._price(choices):
            self._try("tidy", found.choices, f"{found.switches} changes of format instead of {self.problem.switches(choices)}")


def _first(count: int, shown: Callable[[int], bool]) -> int | None:
    """The least number below `count` for which `shown`, which holds for all behind it; None when it holds for none."""
    if count == 0 or not shown(count - 1):
        return None
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if shown(middle) else (middle + 1, high)
    return low


def _kept(units: Sequence[Unit], choices: Choices) -> Choices:
    return {layer: choices[layer] for unit in units for layer in unit.layers}


def _highest(formats: Mapping[str, Effect]) -> str:
    """The format of a layer that costs the least error."""
    return min(formats, key=lambda name: formats[name].value)
