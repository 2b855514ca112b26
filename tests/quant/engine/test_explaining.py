"""Why a layer is in more bits than it could be."""

from types import SimpleNamespace

import numpy as np
import pytest

from quant.core.costs import CostTable, LayerCost
from quant.core.sensitivity import Effect as Measured
from quant.core.sensitivity import SensitivityProfile
from quant.engine.mixing.explaining import _channel, left_out
from quant.graph.layers import find_layers
from quant.graph.model import read_model
from quant.planner.problem import Effect, Problem
from quant.stages.improve import Story


def layers(project):
    return {layer.name: layer for layer in find_layers(read_model(project.folder / "digits.onnx"))}


@pytest.mark.parametrize(("factor", "told"), [(1, []), (1000, ["Output channel 3 of its weights reaches"])])
def test_a_channel_of_weights_far_beyond_the_others_is_named(project, digits, factor, told):
    w0 = digits.weights["w0"].copy()
    w0[:, 3] *= factor
    project.weights(w0=w0)
    found = _channel(layers(project)["dense/first"])
    assert len(found) == len(told)
    if told:
        tops = np.abs(w0).max(axis=0)
        assert f"{tops[3] / np.median(tops):.0f} times as far as the median channel" in found[0]


@pytest.fixture
def explain(project):
    """What is said where both layers of the network are left out and a third is in INT8: effects 0.5, 0.25 and 0, milliseconds 2, 1 and 1 in FP32."""
    times = {"dense/first": (2.0, 1.0), "dense/second": (1.0, 1.5), "third": (1.0, 0.5)}
    effects = {"dense/first": 0.5, "dense/second": 0.25, "third": 0.0}
    found = {name: {"int8": Effect(value), "fp32": Effect(0.0)} for name, value in effects.items()}
    rows = tuple(LayerCost(layer=name, costs=dict(zip(("fp32", "int8"), pair, strict=True))) for name, pair in times.items())
    table = CostTable(kind="made up", unit="ms", estimated=False, source="by hand", layers=rows)
    parts = [("weight", 0.1), ("activation", 0.4), ("both", 0.5)]
    known = tuple(Measured(layer="dense/first", format="int8", part=part, value=value, standard_error=0.0) for part, value in parts)
    profile = SensitivityProfile(measure="output_error", estimator="exact", effects=known, samples=8)
    prepared = SimpleNamespace(layers=list(layers(project).values()))
    base = SimpleNamespace(story=Story(steps=()))
    ground = SimpleNamespace(workshop=SimpleNamespace(prepared=prepared), base=base, table=SimpleNamespace(statistics={}))
    best = {"dense/first": "fp32", "dense/second": "fp32", "third": "int8"}

    def run(**more):
        said = left_out(ground, Problem(found, {"time": table}, **more), best, profile, cost="time")
        return {out.layer: list(out.why) for out in said}

    return run


def test_each_layer_is_told_what_it_costs_what_it_saves_and_whose_error_it_is(explain):
    found = explain()
    assert list(found) == ["dense/first", "dense/second"], "the one that saves most is the first"
    assert found["dense/first"] == [
        "In int8 it would save 1 ms, and add 0.5 to the error, 100 % of what there would be.",
        "80 % of that comes from its activations: smoothquant might help, range-search might help.",
    ]


def test_a_layer_that_is_slower_by_itself_is_said_to_be_too_small(explain):
    first, second = explain()["dense/second"]
    assert first == "In int8 it would cost 0.5 ms, and add 0.25 to the error, 100 % of what there would be."
    assert second == "By itself it costs 1.5 ms in int8, and 1 as it is: too small to win."


def test_layers_that_share_a_format_are_weighed_together(explain):
    """By hand: together they are 0.5 ms quicker, and add 0.75, of which the first adds two thirds."""
    found = explain(groups=(("dense/first", "dense/second"),))
    assert found["dense/first"][:2] == [
        "In int8 it would save 0.5 ms, and add 0.75 to the error, 100 % of what there would be.",
        "That is with the 1 layer whose format it shares, of which it adds 67 %.",
    ]


def test_a_layer_that_the_recipe_keeps_is_said_to_be_kept(explain):
    pins = {"dense/second": "fp32"}
    assert "The recipe keeps it so." in explain(pins=pins)["dense/second"]
    both = explain(pins=pins, groups=(("dense/first", "dense/second"),))
    assert "The recipe keeps dense/second so, whose format it shares." in both["dense/first"]
