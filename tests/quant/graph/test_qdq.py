"""Static INT8: where Q/DQ stand, and numbers by hand."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from quant.core.dialect import Dialect
from quant.core.formats import INT8, UINT8, Range
from quant.errors import PlanError
from quant.graph.layers import find_layers, match_layers
from quant.graph.points import insertion_points
from quant.graph.qdq import write_qdq
from quant.graph.runtime import Runtime
from quant.targets import TARGETS

DIALECT = TARGETS.make("onnxruntime").dialect


def ops(model):
    return [node.op_type for node in model.graph]


def points(proto):
    model = ir.from_proto(proto)
    return set(insertion_points(model, [x for x in find_layers(model) if x.op != "ConvTranspose"], DIALECT))


def weights_of(model):
    return {name: value.const_value.numpy() for name, value in model.graph.initializers.items()}


def test_one_matrix_product_is_what_it_is_by_hand(zoo):
    w = np.float32([[1.27, 0.1], [-0.5, 0.2]])
    model = ir.from_proto(zoo.model([zoo.node("MatMul", "x w", "y", "p")], {"x": [1, 2]}, {"y": [1, 2]}, {"w": w}))
    write_qdq(model, find_layers(model), {"x": Range(-1.0, 1.55)}, DIALECT)
    # x: scale 2.55/255 = 0.01, zero point 100; w: scales 1.27/127 = 0.01 and 0.2/127, codes [[127, 64], [-50, 127]] (63.5 to even: 64).
    codes = weights_of(model)["p_weight_quantized"]
    assert codes.tolist() == [[127, 64], [-50, 127]]
    found = Runtime(model, optimize=False).run({"x": np.float32([[0.504, -3.0]])})["y"]
    # 0.504 -> 50 steps; -3 is clipped to -100 steps.
    expected = np.float32([[0.5 * 1.27 - 1.0 * -0.5, 0.5 * 64 * 0.2 / 127 - 1.0 * 0.2]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.37, 2.5), (-1.5, -0.25)])
def test_the_factors_of_a_gemm_are_in_its_codes(zoo, quantize, alpha, beta):
    w, b = np.float32([[1.0, -2.0], [0.5, 4.0]]), np.float32([3.0, -1.0])
    proto = zoo.model([zoo.node("Gemm", "x w b", "y", "g", alpha=alpha, beta=beta, transB=1)], {"x": ["N", 2]}, {"y": ["N", 2]}, {"w": w, "b": b})
    feed = {"x": np.float32([[1.0, -1.0], [0.25, 0.5]])}
    model, _ = quantize(proto, "int8", [feed])
    held = weights_of(model)
    np.testing.assert_allclose(held["g_weight_scale"], np.abs(alpha * w).max(axis=1) / 127, rtol=1e-6)
    np.testing.assert_allclose(held["g_bias_quantized"] * held["g_bias_scale"].astype(np.float64), beta * b, atol=held["g_bias_scale"].max() / 2)
    for optimize in (False, True):
        np.testing.assert_allclose(Runtime(model, optimize=optimize).run(feed)["y"], alpha * feed["x"] @ w.T + beta * b, atol=0.05)


def test_a_bias_that_would_overflow_grows_the_scale_of_its_channel_only(zoo, quantize):
    proto = zoo.ZOO["an enormous bias"]()
    feeds = [zoo.feed(proto, 0)]
    held = weights_of(quantize(proto, "int8", feeds)[0])
    assert np.abs(held["conv_y_bias_quantized"].astype(np.int64)).max() <= 2**30 + 1
    plain = np.abs(proto_weight(proto, "w")).reshape(4, -1).max(axis=1) / 127
    grown = held["conv_y_weight_scale"] > plain * 1.001
    assert grown.tolist() == [False, False, False, True]
    np.testing.assert_allclose(held["conv_y_bias_quantized"] * held["conv_y_bias_scale"].astype(np.float64), proto_weight(proto, "b"), rtol=1e-4)


def proto_weight(proto, name):
    return weights_of(ir.from_proto(proto))[name]


def test_a_channel_of_zeros_still_has_its_bias(zoo, quantize):
    proto = zoo.ZOO["channels of zeros"]()
    model, _ = quantize(proto, "int8", [zoo.feed(proto, 0)])
    held = weights_of(model)
    np.testing.assert_allclose((held["conv_y_bias_quantized"] * held["conv_y_bias_scale"].astype(np.float64))[[1, 3]], [0.37, 0.0], atol=1e-8)


@pytest.mark.parametrize(
    ("animal_name", "expected"),
    [
        ("relu", {"x", "m", "r2", "p", "f"}),  # behind the activation that melts
        ("relu6", {"x", "m", "r2", "p", "f"}),
        ("clip away from zero", {"x", "c1", "m", "r2", "p", "f"}),  # no scale says what this Clip does: Q/DQ before it, and for its reader
        ("clip on both sides of zero", {"x", "c1", "m", "r2", "p", "f"}),
        ("clip with computed bounds", {"x", "c1", "m", "r2", "p", "f"}),
        ("swish", {"x", "c1", "s", "m", "r2", "p", "f"}),
        ("add of a number", {"x", "c1", "m", "r2", "p", "f"}),
        ("residual with relu", {"x", "r1", "cr", "m", "r2", "p", "f"}),
        ("a conv in the middle that is given out", {"x", "c", "y"}),
        ("matmul", {"x"}),
        ("a moved tensor that floats read too", {"x", "t"}),
    ],
)
def test_pairs_stand_where_the_dialect_wants_them(zoo, animal_name, expected):
    assert points(zoo.ZOO[animal_name]()) == expected


def test_a_number_is_added_to_floats_not_to_codes(zoo, quantize):
    proto = zoo.ZOO["add of a number"]()
    model, _ = quantize(proto, "int8", [zoo.feed(proto, 0)])
    add = next(node for node in model.graph if node.op_type == "Add")
    readers = {reader.op_type for reader, _ in add.outputs[0].uses()}
    assert readers == {"QuantizeLinear"}  # for the Conv behind it, which is what reads codes
    assert {reader.op_type for node in model.graph if node.op_type == "QuantizeLinear" for reader, _ in node.outputs[0].uses()} == {"DequantizeLinear"}


def test_a_moved_tensor_keeps_its_scale_only_on_the_same_grid(zoo):
    proto = zoo.model(
        [zoo.node("Conv", "x w", "c"), zoo.node("Transpose", "c", "t", perm=[0, 1, 3, 2]), zoo.node("MatMul", "c t", "y")],
        {"x": ["N", 2, 4, 4]}, {"y": None}, {"w": zoo.draw(2, 2, 1, 1)},
    )  # fmt: skip
    ranges = {"x": Range(-1.0, 1.0), "c": Range(-2.0, 1.0), "t": Range(-2.0, 1.0)}
    for operands in (UINT8, INT8):
        dialect = Dialect(**{**DIALECT.__dict__, "operands": operands})
        model = ir.from_proto(proto)
        write_qdq(model, find_layers(model), ranges, dialect)
        held = weights_of(model)
        assert held["t_zero_point"].dtype == operands.dtype
        assert (held["t_scale"] == held["c_scale"]) == (operands is UINT8)


def test_layers_that_are_quantized_already_are_left_alone(zoo, quantize):
    proto = zoo.already_quantized()
    for kind in ("int8", "int8-dynamic", "fp16"):
        model, plan = quantize(proto, kind, [zoo.feed(proto, 0)])
        assert next(c for c in plan.layers if c.layer == "theirs").reason == "is quantized already"
        theirs = next(node for node in model.graph if node.name == "theirs")
        assert [v.producer().op_type for v in theirs.inputs] == ["DequantizeLinear"] * 2
        Runtime(model).run(zoo.feed(proto, 1))


def test_two_layers_of_one_name_are_refused_with_the_name(zoo):
    from quant.errors import ModelError

    proto = zoo.model([zoo.node("MatMul", "x w", "h", "same"), zoo.node("MatMul", "h w", "y", "same")], {"x": ["N", 8]}, {"y": None}, {"w": zoo.draw(8, 8)})
    with pytest.raises(ModelError, match="two layers are called 'same'\nhint: give every node"):
        find_layers(ir.from_proto(proto))


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT16", "BFLOAT16"])
def test_only_products_in_fp32_are_layers(zoo, kind):
    from onnx import TensorProto

    dtype = getattr(TensorProto, kind)
    proto = zoo.model([zoo.node("MatMul", "a b", "y")], {"a": [2, 3], "b": [3, 2]}, {"y": [2, 2]}, types=dict.fromkeys("aby", dtype))
    assert find_layers(ir.from_proto(proto)) == ()


def test_patterns_match_by_name_by_shell_pattern_and_by_operator(zoo):
    layers = find_layers(ir.from_proto(zoo.ZOO["relu"]()))
    assert match_layers(layers, ["conv_*"]) == {"conv_c1", "conv_c2"}
    assert match_layers(layers, ["op:Gemm", "conv_c1"]) == {"gemm_y", "conv_c1"}
    with pytest.raises(PlanError, match="'conv_c3' matches no layer") as caught:
        match_layers(layers, ["conv_c3"], where="recipe.yaml:3")
    assert "conv_c1" in str(caught.value)
    with pytest.raises(PlanError, match="'op:LSTM' matches no layer"):
        match_layers(layers, ["op:LSTM"])


def test_channels_lie_where_each_operator_has_them(zoo):
    cases = {"conv": 0, "depthwise conv": 0, "transposed conv": 1, "matmul": 1, "gemm transB": 0, "gemm transA": 1, "matmul with a weight of rank 3": None}
    found = {name: find_layers(ir.from_proto(zoo.ZOO[name]()))[0].channel_axis for name in cases}
    assert found == cases


def test_a_weight_that_may_be_fed_is_no_constant(zoo):
    made = zoo.ZOO["matmul"]()
    made.graph.input.append(helper.make_tensor_value_info("w", 1, [16, 8]))
    assert find_layers(ir.from_proto(made))[0].weight is None
