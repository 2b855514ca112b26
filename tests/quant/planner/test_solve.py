"""The planner against trying everything, and on problems whose answers a hand can work out."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.core.costs import Boundary
from quant.errors import PlanError
from quant.planner.problem import Effect, Goal, Interaction, Problem
from quant.planner.solve import InfeasibleError, solve

FORMATS = ("fp32", "fp16", "int8", "fp8")
NUMBER = st.floats(0, 100, allow_nan=False).map(lambda v: round(v, 3))


@st.composite
def problems(draw, tools):
    layers = [f"layer{n}" for n in range(draw(st.integers(1, 5)))]
    formats = {x: draw(st.lists(st.sampled_from(FORMATS), min_size=1, max_size=3, unique=True)) for x in layers}
    scale = draw(st.sampled_from([1e-7, 1.0, 1e4]))
    effects = tools.effects({x: {f: draw(NUMBER) * scale for f in formats[x]} for x in layers})
    pick = st.sampled_from(layers)

    def boundary(number):
        maker, readers = draw(st.one_of(st.none(), pick)), tuple(draw(st.lists(pick, min_size=1, max_size=3, unique=True)))
        pairs = draw(st.lists(st.tuples(st.sampled_from(FORMATS), st.sampled_from(FORMATS)), max_size=4, unique=True))
        prices = {f"{a}>{b}": draw(NUMBER) for a, b in pairs}
        return Boundary(tensor=f"t{number}", maker=maker, readers=readers, open=draw(st.booleans()), prices=prices)

    time = tools.table({x: {f: draw(NUMBER) for f in formats[x]} for x in layers}, [boundary(n) for n in range(draw(st.integers(0, 3)))], rest=draw(NUMBER))
    size = tools.table({x: {f: draw(NUMBER) for f in formats[x]} for x in layers}, unit="bytes")
    some = st.frozensets(st.sampled_from(FORMATS), min_size=1, max_size=2)
    interactions = tuple(
        Interaction(draw(pick), draw(some), draw(pick), draw(some), draw(st.floats(-20, 50).map(lambda v: round(v, 3))) * scale)
        for _ in range(draw(st.integers(0, 2)))
    )
    group = tuple(draw(st.lists(pick, max_size=2, unique=True)))
    families = draw(st.sampled_from([(), (frozenset({"int8"}), frozenset({"fp8"}))]))
    problem = Problem(effects, {"time": time, "size": size}, groups=(group,), families=families, interactions=interactions)
    return problem, scale


@settings(max_examples=60)
@given(data=st.data())
def test_no_plan_is_better_than_the_one_that_is_found_and_budgets_are_kept(tools, data):
    try:
        problem, scale = data.draw(problems(tools))
        problem.units()
    except PlanError:
        return  # a group without a format in common
    minimize = data.draw(st.sampled_from(["error", "time", "size"]))
    bounded = data.draw(st.lists(st.sampled_from([n for n in ("error", "time", "size") if n != minimize]), unique=True))
    within = {name: data.draw(st.floats(0, 250)) * (scale if name == "error" else 1.0) for name in bounded}
    wanted = tools.least(problem, minimize, within)
    goal = Goal(minimize, within, tie=0.0, deviations=0.0)
    if wanted is None:
        with pytest.raises(InfeasibleError):
            solve(problem, goal)
        return
    found = solve(problem, goal)
    values = next(v for c, v in tools.everything(problem) if c == dict(found.choices))
    assert found.proven
    for name in ("error", "time", "size"):
        assert math.isclose(found.value(name), values[name], rel_tol=1e-9, abs_tol=1e-9 * scale)
    assert math.isclose(values[minimize], wanted, rel_tol=1e-8, abs_tol=1e-8 * scale)
    assert all(values[name] <= most + 2e-9 * abs(most) for name, most in within.items())


def test_taking_the_layers_by_gain_per_error_would_miss_the_best_plan(tools):
    # The knapsack: by saving per error, `small` (6 for 1) goes first, and then neither of the others (5 for 5) fits both.
    effects = tools.effects({"small": {"fp32": 0, "int8": 1}, "first": {"fp32": 0, "int8": 5}, "second": {"fp32": 0, "int8": 5}})
    cost = tools.table({"small": {"fp32": 7, "int8": 5}, "first": {"fp32": 7, "int8": 2}, "second": {"fp32": 7, "int8": 2}})
    found = solve(Problem(effects, {"time": cost}), Goal("time", {"error": 10.0}))
    assert found.choices == {"small": "fp32", "first": "int8", "second": "int8"}
    assert found.costs["time"] == 11


def test_a_group_moves_as_one_even_where_one_of_it_alone_would_fit(tools):
    effects = tools.effects({"q": {"fp32": 0, "int8": 3}, "k": {"fp32": 0, "int8": 1}, "v": {"fp32": 0, "int8": 1}, "o": {"fp32": 0, "int8": 1}})
    cost = tools.table({x: {"fp32": 2, "int8": 1} for x in "qkvo"})
    apart = solve(Problem(effects, {"time": cost}), Goal("time", {"error": 3.0}))
    together = solve(Problem(effects, {"time": cost}, groups=(("q", "k"), ("k", "v"))), Goal("time", {"error": 3.0}))
    assert apart.choices == {"q": "fp32", "k": "int8", "v": "int8", "o": "int8"}
    assert together.choices == {"q": "fp32", "k": "fp32", "v": "fp32", "o": "int8"}


def test_a_layer_without_a_choice_does_not_hold_its_group_back(tools):
    effects = tools.effects({"q": {"fp32": 0, "int8": 1}, "k": {"fp32": 0}})
    found = solve(Problem(effects, {"time": tools.table({"q": {"fp32": 2, "int8": 1}, "k": {"fp32": 2}})}, groups=(("q", "k"),)), Goal("time"))
    assert found.choices == {"q": "int8", "k": "fp32"}


def test_a_budget_of_nothing_leaves_everything_in_fp32(tools):
    problem = tools.parts_of(6)
    found = solve(problem, Goal("time", {"error": 0.0}))
    assert set(found.choices.values()) == {"fp32"}
    assert (found.error.value, found.costs["time"]) == (0, 12)


@pytest.mark.parametrize("tiny", [1e-3, 1e-9, 1e-15])
def test_an_effect_is_not_lost_however_small_it_is_beside_others(tools, tiny):
    effects = tools.effects({"large": {"fp32": 0, "int8": 1e3}, "little": {"fp32": 0, "int8": tiny}, "less": {"fp32": 0, "int8": tiny / 2}})
    problem = Problem(effects, {"time": tools.table({x: {"fp32": 2, "int8": 1} for x in effects})})
    assert solve(problem, Goal("time", {"error": 0.0})).formats == {"fp32"}
    assert solve(problem, Goal("error", {"time": 5.0})).choices == {"large": "fp32", "little": "fp32", "less": "int8"}


def test_one_layer_that_holds_nearly_all_of_the_error_is_left_out_and_nothing_else(tools):
    effects = tools.effects({f"layer{n}": {"fp32": 0, "int8": 95.0 if n == 3 else 5 / 9} for n in range(10)})
    problem = Problem(effects, {"time": tools.table({x: {"fp32": 2, "int8": 1} for x in effects})})
    for budget in (5.0, 50.0, 94.0):
        found = solve(problem, Goal("time", {"error": budget}))
        assert [layer for layer, name in found.choices.items() if name == "fp32"] == ["layer3"]


def test_a_boundary_is_paid_once_for_each_format_that_a_tensor_is_read_in(tools):
    effects = tools.effects({x: {"fp32": 0, "int8": 1} for x in "abc"})
    between = Boundary(tensor="t", maker="a", readers=("b", "c"), prices={"fp32>int8": 10.0})
    cost = tools.table({"a": {"fp32": 1, "int8": 50}, "b": {"fp32": 7, "int8": 1}, "c": {"fp32": 7, "int8": 1}}, [between])
    found = solve(Problem(effects, {"time": cost}), Goal("time"))
    assert found.choices == {"a": "fp32", "b": "int8", "c": "int8"}
    assert found.costs["time"] == 13


def test_two_8_bit_families_do_not_meet_in_one_plan(tools):
    effects = tools.effects({"a": {"fp32": 0, "int8": 5, "fp8": 0.1}, "b": {"fp32": 0, "int8": 0.1, "fp8": 5}, "c": {"fp32": 0, "int8": 2, "fp8": 0.1}})
    costs = {"time": tools.table({x: {"fp32": 2, "int8": 1, "fp8": 1} for x in effects})}
    free = solve(Problem(effects, costs), Goal("error", {"time": 3.0}))
    one = solve(Problem(effects, costs, families=(frozenset({"int8"}), frozenset({"fp8"}))), Goal("error", {"time": 3.0}))
    assert free.choices == {"a": "fp8", "b": "int8", "c": "fp8"}
    assert one.choices == {"a": "fp8", "b": "fp8", "c": "fp8"}


def test_layers_that_do_harm_together_are_taken_apart(tools):
    effects = tools.effects({x: {"fp32": 0, "int8": 1} for x in "abc"})
    cost = {"time": tools.table({"a": {"fp32": 3, "int8": 1}, "b": {"fp32": 2.5, "int8": 1}, "c": {"fp32": 2, "int8": 1}})}
    int8 = frozenset({"int8"})
    assert solve(Problem(effects, cost), Goal("time", {"error": 3.0})).formats == {"int8"}
    harmful = Problem(effects, cost, interactions=(Interaction("a", int8, "b", int8, 10.0),))
    assert solve(harmful, Goal("time", {"error": 3.0})).choices == {"a": "int8", "b": "fp32", "c": "int8"}


def test_layers_that_make_up_for_one_another_are_taken_together(tools):
    effects = tools.effects({x: {"fp32": 0, "int8": 2} for x in "ab"})
    cost = {"time": tools.table({x: {"fp32": 2, "int8": 1} for x in "ab"})}
    int8 = frozenset({"int8"})
    helped = Problem(effects, cost, interactions=(Interaction("a", int8, "b", int8, -3.0),))
    assert solve(helped, Goal("time", {"error": 1.0})).formats == {"int8"}
    with pytest.raises(InfeasibleError, match="time cannot be 2: at least 4 within the other budgets"):
        solve(Problem(effects, cost), Goal("error", {"time": 2.0, "error": 1.0}))


def test_near_ties_do_not_scatter_boundaries(tools):
    # Every second layer is a hair cheaper in INT8 than in FP16: a plan of the very least cost would switch 19 times.
    costs = {f"layer{n}": {"fp16": 10.0, "int8": 10.0 - (1e-3 if n % 2 else -1e-3)} for n in range(20)}
    problem = Problem(tools.effects({x: {"fp16": 0, "int8": 0} for x in costs}), {"time": tools.table(costs)})
    restless, steady = solve(problem, Goal("time", tie=0.0)), solve(problem, Goal("time"))
    assert (restless.switches, steady.switches) == (19, 0)
    assert steady.costs["time"] <= 1.01 * restless.costs["time"]
    assert steady.least == pytest.approx(restless.costs["time"])


def test_errors_within_their_standard_error_do_not_scatter_boundaries(tools):
    effects = {f"layer{n}": {"fp16": Effect(1.0, 0.05), "int8": Effect(1.0 + (0.01 if n % 2 else -0.01), 0.05)} for n in range(9)}
    problem = Problem(effects, {"time": tools.table({x: {"fp16": 1, "int8": 1} for x in effects})})
    assert solve(problem, Goal("error", deviations=0.0)).switches == 8
    assert solve(problem, Goal("error")).switches == 0


def test_a_clear_gain_is_taken_though_it_switches(tools):
    problem = Problem(
        tools.effects({x: {"fp32": 0, "int8": 0} for x in "abc"}),
        {"time": tools.table({"a": {"fp32": 3, "int8": 1}, "b": {"fp32": 1, "int8": 3}, "c": {"fp32": 3, "int8": 1}})},
    )
    assert solve(problem, Goal("time")).choices == {"a": "int8", "b": "fp32", "c": "int8"}


def test_of_plans_that_cost_the_same_the_most_accurate_is_taken(tools):
    problem = Problem(tools.effects({"a": {"int8": 5, "fp16": 1, "fp32": 0}}), {"time": tools.table({"a": {"int8": 2, "fp16": 2, "fp32": 3}})})
    assert solve(problem, Goal("time")).choices == {"a": "fp16"}


def test_what_cannot_be_kept_is_said_with_the_nearest_value(tools):
    problem = tools.parts_of(6)
    with pytest.raises(InfeasibleError, match="time cannot be 5: at least 6, 1 more") as caught:
        solve(problem, Goal("error", {"time": 5.0}))
    assert [(s.name, s.limit, s.nearest, s.alone) for s in caught.value.shortfalls] == [("time", 5.0, 6.0, True)]


def test_budgets_that_are_each_possible_but_not_together_are_told_with_what_the_others_leave(tools):
    with pytest.raises(InfeasibleError, match="error cannot be 2: at least 4 within the other budgets, 2 more") as caught:
        solve(tools.parts_of(6), Goal("time", {"time": 8.0, "error": 2.0}))
    assert {s.name: s.nearest for s in caught.value.shortfalls} == {"error": 4.0, "time": 10.0}


def test_budgets_of_which_more_than_one_is_in_the_way_are_all_told(tools):
    layers = ("a", "b", "c")
    effects = tools.effects({x: {"f1": 0, "f2": 9, "f3": 9} for x in layers})
    costs = {"time": tools.table({x: {"f1": 9, "f2": 0, "f3": 9} for x in layers}), "size": tools.table({x: {"f1": 9, "f2": 9, "f3": 0} for x in layers})}
    with pytest.raises(InfeasibleError, match=r"nor to all but one of them: error within 1 \(alone at least 0\)"):
        solve(Problem(effects, costs), Goal("error", {"error": 1.0, "time": 1.0, "size": 1.0}))


def test_families_that_pins_force_together_are_named(tools):
    effects = tools.effects({"a": {"int8": 0, "fp8": 0}, "b": {"int8": 0, "fp8": 0}})
    problem = Problem(effects, pins={"a": "int8", "b": "fp8"}, families=(frozenset({"int8"}), frozenset({"fp8"})))
    with pytest.raises(InfeasibleError, match="a in int8, b in fp8"):
        solve(problem, Goal("error"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pins": {"layer9": "int8"}}, "there is no layer 'layer9' to plan"),
        ({"pins": {"layer1": "int4"}}, "layer 'layer1': cannot be kept in int4"),
        ({"groups": (("layer0", "lyer1"),)}, "did you mean 'layer1'"),
        ({"costs": {"error": None}}, "no cost can be called 'error'"),
        ({"effects": {"layer0": {}}}, "layer 'layer0': has no format to run in"),
        ({"effects": {"layer0": {"int8": Effect(math.nan)}}}, "the effect of int8 is nan"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(tools, change, message):
    good = tools.parts_of(2)
    with pytest.raises(PlanError, match=message):
        Problem(**({"effects": good.effects, "costs": good.costs} | change))


def test_a_cost_table_must_price_what_is_planned_and_nothing_else(tools):
    effects = tools.effects({"a": {"fp32": 0, "int8": 0}})
    with pytest.raises(PlanError, match="no price of layer 'a' in int8"):
        Problem(effects, {"time": tools.table({"a": {"fp32": 1}})})
    with pytest.raises(PlanError, match="time has a price of layer 'b', of which no effect is known"):
        Problem(effects, {"time": tools.table({"a": {"fp32": 1, "int8": 1}, "b": {"fp32": 1}})})


def test_pins_that_contradict_a_group_are_refused(tools):
    effects = tools.effects({x: {"fp32": 0, "int8": 0} for x in "qk"})
    with pytest.raises(PlanError, match="layers q and k move together, and are kept in fp32 and in int8"):
        solve(Problem(effects, groups=(("q", "k"),), pins={"q": "fp32", "k": "int8"}), Goal("error"))


def test_a_goal_must_be_known_and_a_budget_a_number(tools):
    with pytest.raises(PlanError, match="there are no numbers for 'tme'\nhint: did you mean 'time'"):
        solve(tools.parts_of(2), Goal("tme"))
    with pytest.raises(PlanError, match="the budget of error is nan"):
        Goal("time", {"error": math.nan})


def test_the_same_problem_is_planned_the_same_again(tools):
    problem = tools.parts_of(12)
    assert len({tuple(solve(problem, Goal("time", {"error": 5.0})).choices.values()) for _ in range(3)}) == 1
