"""The best plan within budgets; where nothing keeps to them, which of them, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quant.errors import PlanError
from quant.planner.highs import CLOSE, Answer, Limit
from quant.planner.highs import solve as solve_program
from quant.planner.problem import ERROR, Goal, Problem, Solution
from quant.planner.program import Program


@dataclass(frozen=True)
class Shortfall:
    """A budget that cannot be kept.

    Args:
        name: `error`, or the name of a cost.
        limit: The budget.
        nearest: The least that is possible.
        alone: Whether that is so whatever the other budgets; otherwise it is while those are kept.
    """

    name: str
    limit: float
    nearest: float
    alone: bool

    def __str__(self) -> str:
        more = self.nearest - self.limit
        return f"{self.name} cannot be {self.limit:g}: at least {self.nearest:g}{'' if self.alone else ' within the other budgets'}, {more:.3g} more"


class InfeasibleError(PlanError):
    """No choice of formats keeps to all budgets.

    Args:
        shortfalls: What is missing, budget by budget; none when formats or families already contradict one another.
    """

    def __init__(self, shortfalls: tuple[Shortfall, ...], what: str = "") -> None:
        self.shortfalls = shortfalls
        told = what or "no plan keeps to the budgets: " + "; ".join(map(str, shortfalls))
        super().__init__(told, hint="allow what is missing, or more formats, or keep fewer layers where they are")


def solve(problem: Problem, goal: Goal) -> Solution:
    """The plan that makes `goal.minimize` least within `goal.within`, and among those that are as good the one with the fewest switches.

    As good is what lies within `goal.tie` of the least cost, or within `goal.deviations` standard errors of the least error.
    Among these, the fewest changes of format between neighbours decide, then the quantity itself, then the error or the first cost.

    Raises:
        InfeasibleError: Nothing keeps to all budgets; it says which cannot be kept, and by how much.
        PlanError: The problem contradicts itself, or no plan was found in the time given.
    """
    goal.check(problem)
    program = Program(problem)
    objective = program.quantities[goal.minimize]
    limits = [Limit(program.quantities[name], most) for name, most in goal.within.items()]
    best = solve_program(program, objective, limits, time_limit=goal.time_limit)
    if best is None:
        raise _infeasible(program, goal.within)
    least = objective.value(best.choices)
    steady, chosen = _steadiest(program, goal, limits, best), best
    if steady is not None:
        limits = [*limits, *steady]
        chosen = _next(program, goal, limits, best, of=goal.minimize)
    second = next((n for n in (*problem.costs, ERROR) if n != goal.minimize), None) if goal.minimize == ERROR else ERROR
    if second is not None:
        limits = [*limits, Limit(objective, objective.value(chosen.choices))]
        chosen = _next(program, goal, limits, chosen, of=second)
    return solution(problem, chosen, least, proven=best.proven and chosen.proven)


def _next(program: Program, goal: Goal, limits: list[Limit], before: Answer, *, of: str) -> Answer:
    """The best of what `limits` leave by the quantity `of`; what was there before when rounding leaves nothing."""
    found = solve_program(program, program.quantities[of], limits, time_limit=goal.time_limit)
    return before if found is None else found


def _steadiest(program: Program, goal: Goal, limits: list[Limit], best: Answer) -> list[Limit] | None:
    """Limits that leave the plans with the fewest switches among those as good as `best`; None where `best` has the fewest."""
    objective, problem = program.quantities[goal.minimize], program.problem
    least = objective.value(best.choices)
    more = goal.deviations * problem.error(best.choices).error if goal.minimize == ERROR else goal.tie * abs(least)
    if more <= CLOSE * abs(least):
        more = 0.0
    near = Limit(objective, least + more)
    found = solve_program(program, program.switches, [*limits, near], time_limit=goal.time_limit)
    if found is None or problem.switches(found.choices) >= problem.switches(best.choices):
        return None
    return [near, Limit(program.switches, float(problem.switches(found.choices)))]


def solution(problem: Problem, answer: Answer, least: float, *, proven: bool) -> Solution:
    """The answer, with what it is predicted to do."""
    choices = answer.choices
    costs = {name: table.total(choices) for name, table in problem.costs.items()}
    return Solution(choices, problem.error(choices), costs, problem.switches(choices), proven, least)


def _infeasible(program: Program, within: Mapping[str, float]) -> InfeasibleError:
    """What stands in the way: each budget beside the least that is possible, first with the others kept, else alone."""
    if solve_program(program, program.switches, []) is None:
        return InfeasibleError((), "layers are kept in formats of families that exclude one another: " + _families(program))

    def least(name: str, others: Mapping[str, float]) -> float | None:
        limits = [Limit(program.quantities[n], most) for n, most in others.items()]
        found = solve_program(program, program.quantities[name], limits)
        return None if found is None else program.quantities[name].value(found.choices)

    alone = {name: least(name, {}) for name in within}
    hopeless = tuple(Shortfall(n, within[n], v, alone=True) for n, v in alone.items() if v is not None and not Limit(program.quantities[n], within[n]).keeps(v))
    if hopeless:
        return InfeasibleError(hopeless)
    beside = {name: least(name, {n: most for n, most in within.items() if n != name}) for name in within}
    missing = tuple(Shortfall(n, within[n], v, alone=False) for n, v in beside.items() if v is not None)
    if missing:
        return InfeasibleError(missing)
    pairs = "; ".join(f"{name} within {most:g} (alone at least {alone[name]:g})" for name, most in within.items())
    return InfeasibleError((), f"no plan keeps to the budgets, nor to all but one of them: {pairs}")


def _families(program: Program) -> str:
    only = {unit.layers[0]: unit.formats[0] for unit in program.units if len(unit.formats) == 1}
    found = [f"{layer} in {name}" for layer, name in only.items() if any(name in family for family in program.problem.families)]
    return ", ".join(found)
