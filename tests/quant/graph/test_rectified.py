"""Relu and Clip in other words: the same numbers, and only where ONNX Runtime would mistake them."""

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.graph.rectified import spell_out_bounds
from quant.graph.runtime import Runtime


def graph(zero, first=None):
    """x -> Relu (or `first`) -> Q -> DQ -> y, quantized to the type of `zero`."""
    weights = [numpy_helper.from_array(np.float32(0.5), "scale"), numpy_helper.from_array(np.asarray(zero), "zero")]
    weights += [numpy_helper.from_array(np.float32(number), name) for name, number in (("low", -1), ("high", 2))]
    nodes = [
        first or helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("QuantizeLinear", ["r", "scale", "zero"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], name="d"),
        helper.make_node("Mul", ["d", "d"], ["y"], name="square"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "y")]
    return ir.from_proto(
        helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


X = {"x": np.float32([-3, -0.5, 0.5, 3])}


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_a_relu_before_fp8_is_still_a_relu_in_onnxruntime_with_all_its_optimizations(dtype):
    model = graph(np.zeros((), dtype))
    assert spell_out_bounds(model) == 1
    assert [node.op_type for node in model.graph] == ["Max", "QuantizeLinear", "DequantizeLinear", "Mul"]
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    for optimize in (False, "basic", True):
        np.testing.assert_array_equal(Runtime(model, optimize=optimize).run(X)["y"], np.float32([0, 0, 0.25, 9]))


MOVERS = {
    "Reshape": ("Reshape", ["r", "shape"], {}),
    "Flatten": ("Flatten", ["r"], {}),
    "Transpose": ("Transpose", ["r"], {}),
    "Squeeze": ("Squeeze", ["r", "axis"], {}),
    "Unsqueeze": ("Unsqueeze", ["r", "axis"], {}),
    "Slice": ("Slice", ["r", "start", "end"], {}),
    "MaxPool": ("MaxPool", ["r"], {"kernel_shape": [1, 1]}),
    "Identity": ("Identity", ["r"], {}),
}


@pytest.mark.parametrize("name", MOVERS)
def test_a_relu_whose_moved_values_become_fp8_is_still_a_relu_in_onnxruntime(name):
    model = graph(np.zeros((), ml_dtypes.float8_e4m3fn))
    proto = ir.to_proto(model)
    op, inputs, attributes = MOVERS[name]
    mover = helper.make_node(op, inputs, ["m"], name="mover", **attributes)
    proto.graph.node.insert(1, mover)
    proto.graph.node[2].input[0] = "m"
    for number, values in (("shape", [-1, 1]), ("axis", [0]), ("start", [0, 0]), ("end", [9, 9])):
        proto.graph.initializer.append(numpy_helper.from_array(np.int64(values), number))
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 1, 4]))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    moved = ir.from_proto(proto)
    assert spell_out_bounds(moved) == 1
    for optimize in (False, "basic", True):
        found = Runtime(moved, optimize=optimize).run({"x": X["x"].reshape(1, 1, 1, 4)})["y"]
        np.testing.assert_array_equal(found.reshape(-1), np.float32([0, 0, 0.25, 9]))


def test_a_relu_before_integers_stays_as_it_is():
    model = graph(np.uint8(0))
    assert spell_out_bounds(model) == 0
    assert next(node.op_type for node in model.graph) == "Relu"


@pytest.mark.parametrize(
    ("bounds", "operators", "expected"),
    [(["low", "high"], ["Max", "Min"], [-1, -0.5, 0.5, 2]), (["low"], ["Max"], [-1, -0.5, 0.5, 3]), (["", "high"], ["Min"], [-3, -0.5, 0.5, 2])],
)
def test_a_clip_before_fp8_loads_in_onnxruntime_with_all_its_optimizations(bounds, operators, expected):
    model = graph(np.zeros((), ml_dtypes.float8_e4m3fn), helper.make_node("Clip", ["x", *bounds], ["r"], name="clip"))
    assert spell_out_bounds(model) == 1
    assert [node.op_type for node in model.graph] == [*operators, "QuantizeLinear", "DequantizeLinear", "Mul"]
    assert next(node.name for node in model.graph) == "clip"
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    for optimize in (False, "basic", True):
        np.testing.assert_array_equal(Runtime(model, optimize=optimize).run(X)["y"], np.square(np.float32(expected)))


def test_a_clip_that_bounds_nothing_or_stands_before_integers_stays_as_it_is():
    for zero, inputs in ((np.zeros((), ml_dtypes.float8_e4m3fn), ["x"]), (np.uint8(0), ["x", "low", "high"])):
        model = graph(zero, helper.make_node("Clip", inputs, ["r"], name="clip"))
        assert spell_out_bounds(model) == 0
