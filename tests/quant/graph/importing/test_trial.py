import math

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from quant.errors import ModelError
from quant.graph.importing.trial import Trial, batches, change


def test_examples_get_their_batch_axis_where_it_belongs(build):
    nodes = [helper.make_node("Add", ["x", "c"], ["y"])]
    model = ir.from_proto(build(nodes, {"x": ["T", "N", 3], "c": [3]}, {"y": None}))
    (feed,) = batches(model, [{"x": np.zeros((5, 3), np.float32), "c": np.ones(3, np.float32)}], {"x": 1, "c": None})
    assert feed["x"].shape == (5, 1, 3)
    assert feed["c"].shape == (3,)


def test_a_fixed_batch_size_is_filled_by_repeating_the_example(build):
    model = ir.from_proto(build([helper.make_node("Relu", ["x"], ["y"])], {"x": [4, 3]}, {"y": [4, 3]}))
    (feed,) = batches(model, [{"x": np.arange(3, dtype=np.float32)}], {})
    assert feed["x"].tolist() == [[0, 1, 2]] * 4


def test_a_state_input_starts_as_zeros_and_other_inputs_must_be_given(build):
    model = ir.from_proto(build([helper.make_node("Add", ["x", "state"], ["y"])], {"x": ["N", 3], "state": ["N", 3]}, {"y": None}))
    example = {"x": np.ones(3, np.float32)}
    (feed,) = batches(model, [example], {}, state=["state"])
    assert feed["state"].tolist() == [[0, 0, 0]]
    with pytest.raises(ModelError, match="the data has nothing for the model's input 'state'"):
        batches(model, [example], {})


def test_a_length_of_minus_one_counts_as_not_fixed(build):
    model = ir.from_proto(build([helper.make_node("Relu", ["x"], ["y"])], {"x": [-1, 3]}, {"y": None}))
    assert batches(model, [{"x": np.zeros(3, np.float32)}], {})[0]["x"].shape == (1, 3)


def test_a_trial_runs_the_graph_as_it_is_written(build, tmp_path):
    model = ir.from_proto(build([helper.make_node("Exp", ["x"], ["y"])], {"x": ["N"]}, {"y": ["N"]}))
    found = Trial(({"x": np.array([0.0, 1.0], np.float32)},), tmp_path).outputs(model)
    np.testing.assert_allclose(found[0]["y"], [1, math.e], rtol=1e-6)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_onnx_runtime_refuses_is_an_error_even_without_examples(build, tmp_path):
    model = ir.from_proto(build([helper.make_node("NoSuchOperator", ["x"], ["y"])], {"x": ["N"]}, {"y": ["N"]}))
    with pytest.raises(ModelError, match=r"ONNX Runtime refuses the model: .*NoSuchOperator"):
        Trial((), tmp_path).outputs(model)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([1.0, -4.0], [1.0, -4.0], (0.0, 0.0)),
        ([1.0, -4.0], [1.5, -4.0], (0.5, 0.125)),
        ([0.0, 0.0], [0.0, 0.5], (0.5, 0.5)),
        ([math.nan, math.inf], [math.nan, math.inf], (0.0, 0.0)),
        ([1.0, 2.0], [1.0, math.nan], (math.inf, math.inf)),
        ([1.0, math.inf], [1.0, -math.inf], (math.inf, math.inf)),
    ],
)
def test_change_is_absolute_and_relative_to_the_largest_magnitude(before, after, expected):
    assert change(({"y": np.array(before)},), ({"y": np.array(after)},)) == expected


def test_change_of_shape_or_type_is_infinite():
    assert change(({"y": np.zeros(2)},), ({"y": np.zeros(3)},)) == (math.inf, math.inf)
    assert change(({"y": np.zeros(2)},), ({"y": np.zeros(2, np.float32)},)) == (math.inf, math.inf)


def test_a_flipped_decision_is_a_share():
    assert change(({"y": np.array([1, 2, 3, 4])},), ({"y": np.array([1, 2, 3, 5])},)) == (0.0, 0.0025)


def test_outputs_that_are_no_numbers_can_be_compared(build, tmp_path):
    model = ir.from_proto(build([helper.make_node("Greater", ["x", "x"], ["y"])], {"x": ["N"]}, {"y": ["N"]}, types={"y": TensorProto.BOOL}))
    found = Trial(({"x": np.zeros(2, np.float32)},), tmp_path).outputs(model)
    assert change(found, found) == (0.0, 0.0)
