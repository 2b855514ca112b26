"""Dynamic INT8 in groups, against the arithmetic written out in NumPy."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quant.graph.groups import leave_rounding_to_engine
from quant.graph.layers import find_layers
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS

DIALECT = replace(TARGETS.make("openvino").dialect, dynamic_group=8)


def quantized(proto):
    """The graph in `int8-dynamic` with groups of 8, and its plan."""
    model, scheme = ir.from_proto(proto), SCHEMES.make("int8-dynamic")
    plan = scheme.plan(model, find_layers(model), DIALECT)
    return model, scheme.apply(model, plan, Evidence(), DIALECT)


def product(x, w, group=8):
    """Rows of x in INT8 with a scale for each 8 values, columns of w in INT8 with one each, multiplied exactly."""
    groups = x.astype(np.float64).reshape(*x.shape[:-1], -1, group)
    step = np.maximum(np.abs(groups).max(axis=-1, keepdims=True) / 127, 1e-300)
    rows = (np.rint(groups / step) * step).reshape(x.shape)
    scale = np.abs(w.astype(np.float64)).max(axis=0) / 127
    return rows @ (np.rint(w / scale) * scale)


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("shape", [(5, 24), (2, 5, 24)])
def test_a_product_is_what_it_is_by_hand(zoo, shape, opset):
    w = zoo.draw(24, 3)
    model, _ = quantized(zoo.model([zoo.node("MatMul", "x w", "y")], {"x": list(shape)}, {"y": None}, {"w": w}, opset=opset))
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    x[0, 0], x[..., 8:16] = 0, x[..., 8:16] * 100  # a row of zeros, and a group with a range of its own
    np.testing.assert_allclose(Runtime(model, optimize=False).run({"x": x})["y"], product(x, w), rtol=1e-5, atol=1e-4)


def test_a_transposed_gemm_keeps_its_bias_in_float(zoo):
    w = zoo.draw(3, 24)
    proto = zoo.model([zoo.node("Gemm", "x w b", "y", transB=1)], {"x": [5, 24]}, {"y": None}, {"w": w, "b": np.float32([1, -2, 3])})
    model, plan = quantized(proto)
    assert [c.format for c in plan.layers] == ["int8"]
    x = np.random.default_rng(1).normal(size=(5, 24)).astype(np.float32)
    np.testing.assert_allclose(Runtime(model, optimize=False).run({"x": x})["y"], product(x, w.T) + np.float64([1, -2, 3]), rtol=1e-5, atol=1e-5)


def test_an_input_that_layers_share_is_rounded_once_and_others_read_it_as_it_is(zoo):
    nodes = [zoo.node("MatMul", "x w", "y"), zoo.node("MatMul", "x v", "z"), zoo.node("Relu", "x", "r")]
    proto = zoo.model(nodes, {"x": [5, 24]}, {"y": None, "z": None, "r": None}, {"w": zoo.draw(24, 3), "v": zoo.draw(24, 2, seed=1)})
    model, _ = quantized(proto)
    assert [node.op_type for node in model.graph].count("Round") == 1
    x = np.random.default_rng(1).normal(size=(5, 24)).astype(np.float32)
    np.testing.assert_array_equal(Runtime(model, optimize=False).run({"x": x})["r"], np.maximum(x, 0))


@pytest.mark.parametrize(
    ("nodes", "shape", "weight", "reason"),
    [
        ("MatMul", [5, 20], (20, 3), "it sums 20 products, no multiple of the 8 that share a scale"),
        ("MatMul", [24], (24, 3), "its input is a vector"),
    ],
)
def test_what_cannot_be_grouped_is_left_in_float_with_the_reason(zoo, nodes, shape, weight, reason):
    _, plan = quantized(zoo.model([zoo.node(nodes, "x w", "y")], {"x": shape}, {"y": None}, {"w": zoo.draw(*weight)}))
    assert [(c.format, c.reason) for c in plan.layers] == [("fp32", reason)]


def test_what_is_left_to_the_engine_is_the_float_product_of_rounded_weights(zoo):
    w = zoo.draw(24, 3)
    model, _ = quantized(zoo.model([zoo.node("MatMul", "x w", "y")], {"x": [5, 24]}, {"y": None}, {"w": w}))
    assert leave_rounding_to_engine(model) == 8
    assert [node.op_type for node in model.graph] == ["DequantizeLinear", "MatMul"]
    assert len(model.graph.initializers) == 3
    x = np.random.default_rng(1).normal(size=(5, 24)).astype(np.float32)
    scale = np.abs(w.astype(np.float64)).max(axis=0) / 127
    np.testing.assert_allclose(Runtime(model, optimize=False).run({"x": x})["y"], x @ (np.rint(w / scale) * scale), rtol=1e-5, atol=1e-6)


def test_the_mark_survives_a_file(zoo, tmp_path):
    model, _ = quantized(zoo.model([zoo.node("MatMul", "x w", "y")], {"x": [5, 24]}, {"y": None}, {"w": zoo.draw(24, 3)}))
    ir.save(model, tmp_path / "model.onnx")
    assert leave_rounding_to_engine(ir.load(tmp_path / "model.onnx")) == 8


def test_a_graph_without_rounding_has_groups_of_0(zoo):
    model = ir.from_proto(zoo.model([zoo.node("MatMul", "x w", "y")], {"x": [5, 24]}, {"y": None}, {"w": zoo.draw(24, 3)}))
    before = ir.to_proto(model).SerializeToString()
    assert leave_rounding_to_engine(model) == 0
    assert ir.to_proto(model).SerializeToString() == before
