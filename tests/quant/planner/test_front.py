"""The Pareto front against trying everything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.errors import PlanError
from quant.planner.front import front
from quant.planner.problem import Problem

NUMBER = st.integers(0, 40).map(float)


@settings(max_examples=25)
@given(data=st.data())
def test_the_front_is_the_set_of_plans_that_no_other_dominates(tools, data):
    layers = [f"layer{n}" for n in range(data.draw(st.integers(1, 4)))]
    draw = lambda: {x: {f: data.draw(NUMBER) for f in ("fp32", "fp16", "int8")} for x in layers}  # noqa: E731
    problem = Problem(tools.effects(draw()), {"time": tools.table(draw())})
    points = sorted({(v["time"], v["error"]) for _c, v in tools.everything(problem)})
    wanted, best = [], float("inf")
    for time, error in points:
        if error < best:
            wanted.append((time, error))
            best = error
    found = [(s.costs["time"], s.error.value) for s in front(problem, cost="time", points=1000)]
    assert found == wanted  # sums of whole numbers


def test_few_points_are_spread_over_the_front_and_hold_both_ends(tools):
    problem = tools.parts_of(40)
    found = [(s.costs["time"], s.error.value) for s in front(problem, cost="time", points=5)]
    assert found[0] == (40, 40)
    assert found[-1] == (80, 0)
    assert found == [(40 + 10 * n, 40 - 10 * n) for n in range(5)]


def test_a_front_of_one_plan_is_that_plan(tools):
    [only] = front(Problem(tools.effects({"a": {"int8": 0}}), {"time": tools.table({"a": {"int8": 1}})}), cost="time")
    assert only.choices == {"a": "int8"}


def test_a_front_needs_a_cost_and_two_ends(tools):
    with pytest.raises(PlanError, match="at least 2 points, not 1"):
        front(tools.parts_of(1), cost="time", points=1)
    with pytest.raises(PlanError, match="there are no numbers for 'size'"):
        front(tools.parts_of(1), cost="size")
