"""What the explorer knows, without anything to be seen."""

import numpy as np
import pytest
import yaml

import quant
from quant.core.documents import PrecisionPlan
from quant.engine.mixing.study import study as open_study
from quant.errors import PlanError, RunError
from quant.planner.loop import Joint

MARKUP = "<img src=x onerror=alert(1)>"


def test_a_toggle_changes_the_prediction_by_the_layers_own_effect_and_cost(state, study):
    state.take(dict.fromkeys(state.layers, "fp32"))
    before = state.prediction()
    assert (before.error, before.quantized, before.costs["size"].share) == (0.0, 0, 1.0)
    assert state.toggle("dense/second", "int8") == ("dense/second",)
    after = state.prediction()
    effect = study.profile.effect("dense/second", "int8")
    assert (after.error, after.standard_error) == (effect.value, effect.standard_error)
    assert after.quantized == 1
    table = study.problem.costs["size"]
    # Of what the layer itself costs, and of nothing else: sizes have no boundaries.
    assert before.costs["size"].value - after.costs["size"].value == pytest.approx(table.cost("dense/second", "fp32") - table.cost("dense/second", "int8"))
    assert after.decibels == pytest.approx(-10 * np.log10(effect.value))
    assert state.toggle("dense/second", "int8") == ()


def test_predictions_run_nothing(state, monkeypatch):
    from quant.graph.runtime import Runtime

    monkeypatch.setattr(Runtime, "__init__", None)
    for cost in state.costs:
        state.look_at(cost)
        state.budget(state.front[0].error.value)
    assert state.prediction().quantized > 0


def test_a_budget_takes_the_cheapest_plan_that_keeps_it(state):
    front = state.front
    assert front[0].error.value > front[-1].error.value == 0.0
    assert state.budget(0.0).choices == dict.fromkeys(state.layers, "fp32")
    assert state.budget(1.0).choices == front[0].choices
    middle = front[len(front) // 2]
    assert state.budget(middle.error.value).costs[state.cost] == middle.costs[state.cost]
    assert state.prediction().error == middle.error.value


def test_what_is_not_there_is_refused_by_name(state):
    with pytest.raises(PlanError, match="there is no layer 'dense/third'"):
        state.toggle("dense/third", "int8")
    with pytest.raises(PlanError, match="cannot run in 'int3'"):
        state.toggle("dense/second", "int3")
    with pytest.raises(PlanError, match="no cost 'money'"):
        state.look_at("money")


def test_layers_that_move_together_are_toggled_together(study):
    from dataclasses import replace

    from quant.notebook.state import State

    bound = State(replace(study, problem=replace(study.problem, groups=((MARKUP, "dense/second"),))))
    bound.take(dict.fromkeys(bound.layers, "fp32"))
    assert bound.together(MARKUP) == (MARKUP, "dense/second")
    assert bound.toggle(MARKUP, "int8") == (MARKUP, "dense/second")
    assert set(bound.choices.values()) == {"int8"}


def test_measuring_runs_the_plan_and_stands_beside_its_prediction(state):
    state.everywhere("int8")
    found = state.measure()
    assert found.predicted == state.prediction()
    assert found.found.error == pytest.approx(found.predicted.error, rel=1.0)
    assert found.found.error > 0
    assert "accuracy drops by" in found.found.told
    assert state.measured == [found]


def test_a_plan_that_is_saved_is_what_apply_takes(state, explored, tmp_path, monkeypatch):
    from quant.engine import timing

    monkeypatch.setattr(timing, "measure_first_runs", lambda *_arguments, **_options: {})
    state.take(dict.fromkeys(state.layers, "fp32"))
    state.toggle(MARKUP, "int8")
    path = state.save(tmp_path / "plan.yaml")
    assert yaml.safe_load(path.read_text())["layers"] == {MARKUP: "int8", "dense/second": "fp32"}
    assert path.read_text().startswith("# 1 of 2 layers quantized; predicted error ")
    run = quant.apply(explored.recipe, plan=path, output=tmp_path / "applied")
    plan = PrecisionPlan.load(tmp_path / "applied" / "plans" / "onnxruntime" / "mixed.json")
    assert plan.quantized == (MARKUP,)
    monkeypatch.chdir(explored.folder)
    assert {c.layer: c.format for c in plan.layers} == dict(open_study(run).start)


def test_a_folder_without_a_recipe_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"holds no recipe\.yaml"):
        open_study(tmp_path)


def test_a_layer_under_the_glass_shows_what_numpy_finds(state, study, digits):
    view = state.view(MARKUP)
    weights = digits.weights["w0"]
    assert view.weights.shape == weights.shape
    assert sum(view.weights.histogram.counts) == weights.size
    counts, _ = np.histogram(weights, bins=80, range=(weights.min(), weights.max()))
    assert sum(view.weights.histogram.counts[:40]) == pytest.approx(counts[:40].sum(), abs=weights.size / 100)
    steps = np.abs(weights).max(axis=0) / 127
    error = np.square(np.rint(weights / steps) * steps - weights).sum(axis=0) / np.square(weights).sum(axis=0)
    worst = view.weights.channels[0]
    assert worst.number == int(np.argmax(error))
    assert worst.error == pytest.approx(error.max(), rel=1e-4)
    [read] = view.inputs
    assert read.tensor == "x"
    assert {c.calibrator for c in read.choices if c.used} == {study.workshop.bound.calibrator.kind}
    samples = study.closing.search.samples
    peaks = [float(np.abs(samples[n].feeds[0]["x"]).max()) for n in range(32)]
    assert [o.magnitude for o in read.outliers] == sorted(peaks, reverse=True)[:5]
    channels = np.max([np.abs(samples[n].feeds[0]["x"]) for n in range(32)], axis=0)
    assert read.channels[0].magnitude == channels.max()


def test_the_clipped_share_is_the_share_of_values_outside_the_range(state, study):
    [read] = state.view("dense/second").inputs
    seen = study.ground.table.statistics[read.tensor]
    for choice in read.choices:
        assert 0 <= choice.clipped < 1
        if choice.clipped == 0:
            assert choice.low <= seen.bins.centers[0]
            assert choice.high >= seen.bins.centers[-1]
    assert {c.calibrator for c in read.choices} >= {"minmax"}
    assert next(c for c in read.choices if c.calibrator == "minmax").clipped == 0


def test_a_measurement_of_a_broken_plan_says_so(state, monkeypatch):
    from quant.engine.mixing.searching import Search

    monkeypatch.setattr(Search, "measure", lambda *_: Joint(1e12, 0.0, passes=False, told="the engine refuses it"))
    assert not state.measure().found.passes
