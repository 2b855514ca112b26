"""Quantizers in the twin: ONNX's arithmetic code for code, and gradients that pass."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from quant.twin.make import make_twin

KINDS = ("INT8", "UINT8", "INT4", "UINT4", "INT16", "UINT16", "FLOAT8E4M3FN", "FLOAT8E5M2")


def pair(kind, shape, scale_shape, **attributes):
    """x -> QuantizeLinear -> DequantizeLinear -> y, with scale and zero point as weights."""
    code = getattr(onnx.TensorProto, kind)
    zero = helper.make_tensor("z", code, scale_shape, np.zeros(int(np.prod(scale_shape))).tolist())
    scale = np.abs(np.random.default_rng(5).normal(size=scale_shape)).astype(np.float32) + 0.1
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [onnx.numpy_helper.from_array(scale, "s"), zero])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    return onnx.shape_inference.infer_shapes(made), scale


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("scale_shape", "attributes"), [((), {}), ((4,), {"axis": 0}), ((2, 6), {"axis": 0, "block_size": 2}), ((4, 2), {"axis": 1, "block_size": 3})]
)
def test_a_pair_is_that_of_the_reference_evaluator(kind, scale_shape, attributes):
    proto, scale = pair(kind, [4, 6], scale_shape, **attributes)
    steps = np.concatenate([np.arange(-6, 6) + 0.5, [-1e6, 1e6, 0, -0.0, 300.4, -300.4, 1e-30, 7.5, -8.5, 447, 449, 127.5]]).astype(np.float32).reshape(4, 6)
    spread = scale if not scale_shape else scale.reshape(4, 1) if len(scale_shape) == 1 else np.repeat(scale, attributes["block_size"], attributes["axis"])
    x = steps * spread
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    found = make_twin(ir.from_proto(proto), check=None).run({"x": x})["y"]
    np.testing.assert_array_equal(found.numpy(), expected)


@settings(max_examples=30)
@given(x=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20), scale=st.floats(0.015625, 2, width=32), zero=st.integers(0, 255))
def test_codes_are_those_of_numpy(x, scale, zero):
    values = np.array(x, np.float32)
    codes = np.clip(np.rint(values / np.float32(scale)) + zero, 0, 255)
    expected = ((codes - zero).astype(np.float32) * np.float32(scale)).astype(np.float32)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [None]) for n in ("x", "y")]
    weights = [onnx.numpy_helper.from_array(np.array(a), n) for n, a in (("s", np.float32(scale)), ("z", np.uint8(zero)))]
    proto = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:], weights), opset_imports=[helper.make_opsetid("", 21)])
    np.testing.assert_array_equal(make_twin(ir.from_proto(proto), check=None).run({"x": values})["y"].numpy(), expected)


def test_gradients_pass_inside_the_range_and_train_the_scale():
    """With s = 0.5: d y / d x is 1 inside and 0 where clipped; d y / d s is round(x / s) - x / s inside and the code where clipped."""
    proto, _ = pair("INT8", [6], ())
    twin = make_twin(ir.from_proto(proto), check=None)
    (scale,) = twin.train(["s"])
    with torch.no_grad():
        scale.fill_(0.5)
    x = torch.tensor([0.3, -1.1, 0.25, 63.4, 80.0, -90.0], requires_grad=True)
    twin.module(x)[0].sum().backward()
    assert x.grad.tolist() == [1, 1, 1, 1, 0, 0]
    inside = [1 - 0.6, -2 + 2.2, 0 - 0.5, 127 - 126.8]
    assert scale.grad.item() == pytest.approx(sum(inside) + 127 - 128, abs=1e-4)


def test_eight_bit_floats_keep_nan_and_saturate_and_pass_gradients():
    proto, _ = pair("FLOAT8E4M3FN", [4], ())
    twin = make_twin(ir.from_proto(proto), check=None)
    with torch.no_grad():
        twin.parameters["s"].fill_(1)
    x = torch.tensor([float("nan"), float("inf"), -1e4, 3.3], requires_grad=True)
    (y,) = twin.module(x)
    assert torch.equal(y.detach(), torch.tensor([float("nan"), 448, -448, 3.25])) or (bool(y[0].isnan()) and y[1:].tolist() == [448, -448, 3.25])
    y[1:].sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 1]


def test_codes_that_leave_the_graph_or_go_elsewhere_are_integers(zoo):
    weights = {"s": np.float32(0.1), "z": np.uint8(3)}
    proto = zoo.model(
        [zoo.node("QuantizeLinear", "x s z", "q"), zoo.node("Cast", "q", "y", to=6)], {"x": [4]}, {"y": None, "q": None}, weights, types={"y": 6, "q": 2}
    )
    made = make_twin(ir.from_proto(proto), check=[zoo.feed(proto)]).run(zoo.feed(proto))
    assert (made["q"].dtype, made["y"].dtype) == (torch.uint8, torch.int32)


def test_gradients_pass_through_codes_that_are_moved_on_their_way(zoo):
    weights = {"s": np.float32(0.1), "z": np.int8(0)}
    nodes = [
        zoo.node("QuantizeLinear", "x s z", "q"),
        zoo.node("Transpose", "q", "t", perm=[1, 0]),
        zoo.node("DequantizeLinear", "t s z", "y"),
    ]
    proto = zoo.model(nodes, {"x": [2, 3]}, {"y": None}, weights)
    twin = make_twin(ir.from_proto(proto), check=[zoo.feed(proto)])
    x = torch.from_numpy(zoo.feed(proto)["x"]).requires_grad_()
    twin.module(x)[0].sum().backward()
    assert x.grad.tolist() == [[1.0] * 3] * 2
