"""The closed loop, on models whose joint errors are made up: whoever wrote them knows which plan is best."""

from __future__ import annotations

import pytest

from quant.core.costs import CostTable, LayerCost
from quant.errors import PlanError
from quant.planner.loop import Bounds, Joint, close
from quant.planner.problem import Effect, Problem

FORMATS = ("fp32", "int8")


def problem(effects, times=None, **more):
    """Layers that may run in FP32 (no error, time 2 unless `times` says otherwise) or in INT8 (time 1)."""
    times = times or {}
    rows = tuple(LayerCost(layer=name, costs=dict(zip(FORMATS, times.get(name, (2.0, 1.0)), strict=True))) for name in effects)
    table = CostTable(kind="made up", unit="ms", estimated=False, source="by hand", layers=rows)
    found = {name: {"fp32": Effect(0.0), "int8": Effect(value, value / 100)} for name, value in effects.items()}
    return Problem(found, {"time": table}, **more)


def model(effects, *, limit, pairs=(), hidden=None):
    """A measurement: errors add up, but for `pairs` (a, b, extra), and those of `hidden` layers are others than predicted."""
    asked = []

    def measure(choices):
        asked.append(dict(choices))
        quantized = {layer for layer, name in choices.items() if name == "int8"}
        error = sum((hidden or {}).get(layer, effects[layer]) for layer in sorted(quantized))
        error += sum(extra for a, b, extra in pairs if {a, b} <= quantized)
        return Joint(error, error / 100, error <= limit)

    return measure, asked


def left_out(found):
    return sorted(layer for layer, name in found.best.items() if name == "fp32")


def test_one_sensitive_layer_among_many_is_found_and_nothing_else_is_left_out():
    effects = {f"layer{n}": 0.001 * (1 + n % 7) for n in range(40)} | {"residual": 3.0}
    measure, asked = model(effects, limit=0.5)
    found = close(problem(effects), measure)
    assert left_out(found) == ["residual"]
    assert found.in_time
    assert len(asked) <= 16


def test_a_model_that_passes_in_int8_throughout_is_measured_once_or_little_more():
    effects = {f"layer{n}": 0.001 for n in range(40)}
    measure, asked = model(effects, limit=0.5)
    found = close(problem(effects), measure)
    assert left_out(found) == []
    assert len(asked) == 1


def test_two_layers_that_are_harmful_only_together_are_caught_by_the_joint_measurement():
    effects = {f"layer{n}": 0.001 * (1 + n % 7) for n in range(40)}
    measure, asked = model(effects, limit=0.5, pairs=[("layer3", "layer29", 5.0)])
    found = close(problem(effects), measure)
    assert len(left_out(found)) == 1
    assert left_out(found)[0] in {"layer3", "layer29"}
    pair = found.problem.interactions[0]
    assert (pair.one, pair.other, pair.effect) == ("layer3", "layer29", pytest.approx(5.0))
    assert len(asked) <= 30


def test_a_layer_that_does_more_than_was_predicted_gets_the_effect_that_was_measured():
    effects = {f"layer{n}": 0.01 for n in range(20)}
    measure, _ = model(effects, limit=0.5, hidden={"layer7": 4.0})
    found = close(problem(effects), measure)
    assert left_out(found) == ["layer7"]
    assert found.problem.effects["layer7"]["int8"].value == pytest.approx(4.0)


def test_what_the_prediction_ranks_wrongly_is_given_back_until_the_plan_passes():
    """Every layer does twice what was predicted, which no pair explains: the limit is kept all the same."""
    effects = {f"layer{n}": 0.01 * (n + 1) for n in range(10)}
    measure, _ = model(effects, limit=0.305, hidden={name: 2 * value for name, value in effects.items()})
    found = close(problem(effects), measure, bounds=Bounds(refits=0))
    kept = [name for name, chosen in found.best.items() if chosen == "int8"]
    assert sum(2 * effects[name] for name in kept) <= 0.305
    # By hand: 0.02 + 0.04 + 0.06 + 0.08 + 0.10 = 0.30 fits into 0.305, a sixth layer does not, with 5 layers at one millisecond less each.
    assert len(kept) == 5


def test_success_by_giving_back_the_very_last_group_is_success():
    effects = {"only": 1.0, "other": 2.0}
    measure, _ = model(effects, limit=1.5)
    assert left_out(close(problem(effects), measure)) == ["other"]


def test_a_budget_that_needs_everything_in_fp32_ends_without_a_plan():
    effects = {f"layer{n}": 1.0 for n in range(8)}
    measure, _ = model(effects, limit=0.5)
    found = close(problem(effects), measure)
    assert found.best is None
    assert found.in_time


def test_a_layer_that_holds_nearly_all_error_is_left_out_and_not_nothing():
    effects = {"all": 95.0} | {f"layer{n}": 0.5 for n in range(10)}
    measure, _ = model(effects, limit=5.0)
    assert left_out(close(problem(effects), measure)) == ["all"]


def test_layers_that_move_together_are_given_back_together():
    effects = {"q": 0.01, "k": 2.0, "v": 0.01, "out": 0.01}
    measure, _ = model(effects, limit=0.5)
    assert left_out(close(problem(effects, groups=(("q", "k", "v"),)), measure)) == ["k", "q", "v"]


def test_a_layer_that_is_slower_in_int8_stays_in_fp32_though_int8_would_pass():
    effects = {"big": 0.01, "tiny": 0.01}
    measure, _ = model(effects, limit=0.5)
    assert left_out(close(problem(effects, times={"tiny": (1.0, 1.5)}), measure)) == ["tiny"]


def test_speed_is_won_where_the_prediction_was_too_careful():
    """Layers do half of what was predicted: more of them fit, one after the other."""
    effects = {f"layer{n}": 1.0 for n in range(6)}
    measure, _ = model(effects, limit=2.0, hidden=dict.fromkeys(effects, 0.5))
    found = close(problem(effects), measure, bounds=Bounds(points=2))
    assert len(left_out(found)) == 2  # 4 of 6 at 0.5 each are the 2.0 that are allowed


def test_when_the_time_is_over_the_best_plan_so_far_is_given():
    effects = {f"layer{n}": 0.1 * (n + 1) for n in range(10)}
    measure, asked = model(effects, limit=1.0)
    found = close(problem(effects), measure, over=lambda: len(asked) >= 3)
    assert not found.in_time
    assert len(found.steps) == len(asked) == 3
    assert found.best in [s.choices for s in found.steps if s.joint.passes]


def test_no_time_at_all_still_gives_the_predicted_front():
    effects = {f"layer{n}": 0.1 * (n + 1) for n in range(4)}
    measure, asked = model(effects, limit=1.0)
    found = close(problem(effects), measure, over=lambda: True)
    assert (found.best, found.in_time, asked) == (None, False, [])
    assert len(found.front) == 5


def test_every_step_tells_what_was_predicted_and_what_was_measured():
    effects = {"a": 0.25, "b": 2.0}
    measure, _ = model(effects, limit=1.0)
    first = close(problem(effects), measure).steps[0]
    assert (first.action, first.predicted.value, first.joint.error, first.cost) == ("front", 2.25, 2.25, 2.0)
    assert first.told == "plan 1 of 3 on the front"


def test_a_cost_that_is_not_there_is_refused():
    effects = {"a": 0.1}
    measure, _ = model(effects, limit=1.0)
    with pytest.raises(PlanError, match="there are no numbers for 'speed'"):
        close(problem(effects), measure, cost="speed")
