"""A plan that held up on search samples and not on others: the next one, which gives back so much that it is no narrow case any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quant.planner.loop import Joint, Step
from quant.planner.moves import Choices, best_move, moved, named, quantizes
from quant.planner.problem import Problem, Unit

SHARE = 0.5
"""The error of the next plan, as a share of that of the one before."""


@dataclass(frozen=True)
class Further:
    """The next plan.

    Args:
        choices: Layer -> format; None when nothing is left to give back.
        steps: What was measured on the way to it.
        in_time: Whether it ended by itself.
    """

    choices: Choices | None
    steps: tuple[Step, ...]
    in_time: bool = True


def further(
    problem: Problem, choices: Choices, joint: Joint, measure: Callable[[Choices], Joint], *, cost: str = "time", most: int = 8, over: Callable[[], bool] = bool
) -> Further:
    """Give back the groups with the best recovery for their cost, measured as a whole, until the error is half of what it was and the plan passes.

    Where that would leave nothing quantized, the last plan before that is the next, if its error is smaller at all.

    Args:
        problem: Predicted effects, as corrected, and costs.
        choices: The plan that did not hold up.
        joint: What was measured of it.
        measure: Measures a plan as a whole.
        cost: Name of the cost.
        most: How many plans are measured.
        over: Whether the time is over: no further plan is measured then.
    """
    limit = SHARE * problem.error(choices).value
    steps: list[Step] = []
    known: dict[tuple[str, ...], Joint] = {tuple(choices.values()): joint}
    given: list[Unit] = []
    now = choices
    while len(steps) < most:
        move = best_move(problem, now, cost=cost, back=True)
        trial = moved(now, move) if move is not None else now
        last = move is None or not quantizes(trial)
        if move is not None and not last:
            now = trial
            given.append(move[0])
            if problem.error(now).value > limit:
                continue
        if not given:
            return Further(None, tuple(steps))
        key = tuple(now.values())
        if key not in known:
            if over():
                return Further(None, tuple(steps), in_time=False)
            known[key] = measure(now)
            told = f"{named(given)} back to more bits"
            steps.append(Step("give back", dict(now), problem.error(now), problem.costs[cost].total(now), known[key], told))
        if known[key].passes and known[key].error <= SHARE * joint.error:
            return Further(now, tuple(steps))
        if last:
            return Further(now if known[key].error < joint.error else None, tuple(steps))
    return Further(now if steps and steps[-1].joint.error < joint.error else None, tuple(steps))
