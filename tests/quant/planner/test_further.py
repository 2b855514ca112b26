"""What comes after a plan that did not hold up on other samples, on models whose joint errors are made up."""

from __future__ import annotations

import pytest

from quant.core.costs import CostTable, LayerCost
from quant.planner.further import further
from quant.planner.loop import Joint
from quant.planner.moves import best_move
from quant.planner.problem import Effect, Problem


def problem(effects, **more):
    rows = tuple(LayerCost(layer=name, costs={"fp32": 2.0, "int8": 1.0}) for name in effects)
    table = CostTable(kind="made up", unit="ms", estimated=False, source="by hand", layers=rows)
    return Problem({name: {"fp32": Effect(0.0), "int8": Effect(value)} for name, value in effects.items()}, {"time": table}, **more)


def measured(effects, factor=1.0, limit=100.0):
    def measure(choices):
        error = factor * sum(effects[name] for name, chosen in choices.items() if chosen == "int8")
        return Joint(error, 0.0, passes=error <= limit)

    return measure


def found(effects, *, measure=None, **more):
    everywhere = dict.fromkeys(effects, "int8")
    measure = measure or measured(effects)
    return further(problem(effects), everywhere, measure(everywhere), measure, **more)


def quantized(choices):
    return sorted(name for name, chosen in choices.items() if chosen == "int8")


def test_what_recovers_most_is_given_back_until_half_of_the_error_is_left():
    """By hand: of 0.4 + 0.3 + 0.2 + 0.1 the 0.4 leaves 0.6, the 0.3 too leaves 0.3, which is less than 0.5."""
    result = found({"a": 0.2, "b": 0.4, "c": 0.1, "d": 0.3})
    assert quantized(result.choices) == ["a", "c"]
    assert [step.told for step in result.steps] == ["b and 1 more back to more bits"]
    assert result.steps[0].joint.error == pytest.approx(0.3)


def test_a_plan_whose_error_as_a_whole_is_not_half_gives_back_another_group():
    """Whatever remains is off by 0.2 as a whole: half of 1.2 is reached with 0.3 + 0.2, and not with 0.5 + 0.2."""
    effects = {"a": 0.5, "b": 0.2, "c": 0.3}

    def measure(choices):
        return Joint(0.2 + measured(effects)(choices).error, 0.0, passes=True)

    result = found(effects, measure=measure)
    assert [len(quantized(step.choices)) for step in result.steps] == [2, 1]
    assert quantized(result.choices) == ["b"]


def test_a_plan_that_does_not_pass_as_a_whole_is_not_the_next():
    effects = {"a": 0.5, "b": 0.2, "c": 0.3}
    result = found(effects, measure=measured(effects, limit=0.25))
    assert quantized(result.choices) == ["b"]


def test_the_last_group_before_nothing_is_left_is_tried_though_it_is_not_half():
    """As a whole 0.9 + 0.3 are left of 1.9 + 0.3, which is more than half; but with `b` given back as well nothing would be quantized."""
    effects = {"a": 1.0, "b": 0.9}
    result = found(effects, measure=lambda choices: Joint(0.3 + measured(effects)(choices).error, 0.0, passes=True))
    assert quantized(result.choices) == ["b"]
    assert found({"a": 1.0}).choices is None, "there is nothing to give back but all"


def test_nothing_that_is_no_better_is_the_next():
    effects = {"a": 1.0, "b": 0.5}
    result = found(effects, measure=lambda _choices: Joint(1.0, 0.0, passes=True))
    assert (result.choices, len(result.steps)) == (None, 1)


def test_when_the_time_is_over_nothing_is_measured():
    result = found({"a": 1.0, "b": 0.5}, over=lambda: True)
    assert (result.choices, result.steps, result.in_time) == (None, (), False)


def test_no_more_plans_are_measured_than_are_allowed():
    effects = {f"layer{n}": 1.0 + n for n in range(20)}
    result = found(effects, measure=lambda choices: Joint(1.0 - 0.001 * len(quantized(choices)), 0.0, passes=False), most=3)
    assert (result.choices, len(result.steps)) == (None, 3)


def test_a_change_into_a_format_of_another_family_is_no_move():
    effects = {"a": {"int8": Effect(0.1), "fp8": Effect(0.01)}, "b": {"int8": Effect(0.1), "fp8": Effect(0.01)}}
    rows = tuple(LayerCost(layer=name, costs={"int8": 1.0, "fp8": 1.5}) for name in effects)
    table = CostTable(kind="made up", unit="ms", estimated=False, source="by hand", layers=rows)
    families = (frozenset({"int8"}), frozenset({"fp8"}))
    mixed = Problem(effects, {"time": table}, families=families)
    assert best_move(mixed, {"a": "int8", "b": "int8"}, cost="time", back=True) is None
    assert best_move(Problem(effects, {"time": table}), {"a": "int8", "b": "int8"}, cost="time", back=True)[1] == "fp8"
