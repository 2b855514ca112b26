"""The Pareto front: plans of which none is both cheaper and more accurate than another."""

from __future__ import annotations

from dataclasses import dataclass

from quant.errors import PlanError
from quant.planner.highs import Limit
from quant.planner.highs import solve as solve_program
from quant.planner.problem import ERROR, Goal, Problem, Solution
from quant.planner.program import Program
from quant.planner.solve import solution

_NARROW = 1e-3
"""Share of the range of costs below which a gap between two plans is not looked into."""


@dataclass
class _Gap:
    """Between two neighbouring plans: costs above `low` and below that of the dearer plan have not been looked into."""

    cheap: Solution
    dear: Solution
    low: float


def front(problem: Problem, *, cost: str, points: int = 25, time_limit: float | None = None) -> tuple[Solution, ...]:
    """Plans from the cheapest to the most accurate, none of which is dominated; each is the best for what it costs.

    The widest gap is halved until there are enough plans, or nothing is left between any two: then the front is whole.

    Args:
        problem: What is to be planned.
        cost: The name of the cost.
        points: How many plans at most, at least 2.
        time_limit: Seconds for each program.

    Raises:
        PlanError: There is no such cost, or too few points are wanted.
    """
    Goal(minimize=cost).check(problem)
    if points < 2:  # noqa: PLR2004 - both ends
        raise PlanError(f"a front has at least 2 points, not {points}")
    program = Program(problem)
    cheapest = _best(program, (cost, ERROR), [], time_limit)
    if cheapest is None:
        raise PlanError("layers are kept in formats of families that exclude one another")
    best = _best(program, (ERROR, cost), [], time_limit)
    assert best is not None, "the same choices as before"
    found = {_key(s): s for s in (cheapest, best)}
    span = best.costs[cost] - cheapest.costs[cost]
    gaps = [_Gap(cheapest, best, cheapest.costs[cost])] if span > 0 else []
    while gaps and len(found) < points:
        gap = gaps.pop(max(range(len(gaps)), key=lambda n: _area(gaps[n], cost)))
        top = gap.dear.costs[cost]
        if top - gap.low <= _NARROW * span:
            continue
        middle = (gap.low + top) / 2
        better = _best(program, (ERROR, cost), [Limit(program.quantities[cost], middle)], time_limit)
        if better is None or better.error.value >= gap.cheap.error.value:
            gaps.append(_Gap(gap.cheap, gap.dear, middle))
            continue
        found[_key(better)] = better
        gaps += [_Gap(gap.cheap, better, gap.low), _Gap(better, gap.dear, middle)]
    return undominated(tuple(found.values()), cost)


def undominated(solutions: tuple[Solution, ...], cost: str) -> tuple[Solution, ...]:
    """Those of `solutions` that no other beats in one of error and cost while being as good in the other, by rising cost."""
    kept: list[Solution] = []
    for one in sorted(solutions, key=lambda s: (s.costs[cost], s.error.value, _key(s))):
        if not kept or one.error.value < kept[-1].error.value:
            kept.append(one)
    return tuple(kept)


def _key(one: Solution) -> tuple[str, ...]:
    return tuple(one.choices.values())


def _area(gap: _Gap, cost: str) -> float:
    return (gap.dear.costs[cost] - gap.low) * (gap.cheap.error.value - gap.dear.error.value)


def _best(program: Program, order: tuple[str, str], limits: list[Limit], time_limit: float | None) -> Solution | None:
    """The best by the first quantity, and among those by the second."""
    first, second = (program.quantities[name] for name in order)
    answer = solve_program(program, first, limits, time_limit=time_limit)
    if answer is None:
        return None
    least = first.value(answer.choices)
    again = solve_program(program, second, [*limits, Limit(first, least)], time_limit=time_limit) or answer
    return solution(program.problem, again, least, proven=answer.proven and again.proven)
