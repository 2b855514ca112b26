"""A graph without its rounding, held to NumPy in float64 and to the width of a step."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from quant.graph.runtime import Runtime
from quant.graph.unrounded import move_weights, take_rounding_away, without_rounding

SPEC = importlib.util.spec_from_file_location("half_scales", Path(__file__).with_name("half_scales.py"))
half_scales = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(half_scales)


def made(nodes, inputs, outputs, weights, opset=21):
    ends = [[helper.make_tensor_value_info(n, t, s) for n, (t, s) in part.items()] for part in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(proto, full_check=True)
    return ir.from_proto(proto)


FLOAT = TensorProto.FLOAT


def pair(scale, zero, dtype=FLOAT, size=5):
    """x -> Q -> DQ -> y."""
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="dq")]
    return made(nodes, {"x": (dtype, [size])}, {"y": (dtype, [size])}, {"s": scale, "z": zero})


X = np.float32([-100, -0.26, 0.1, 0.24, 100])


@pytest.mark.parametrize(("zero", "low", "high"), [(np.int8(0), -64, 63.5), (np.uint8(0), 0, 127.5), (np.uint8(128), -64, 63.5), (np.int8(-100), -14, 100)])
def test_what_is_quantized_is_limited_and_no_longer_rounded(zero, low, high):
    model = pair(np.float32(0.5), zero)
    take_rounding_away(model)
    np.testing.assert_allclose(Runtime(model, optimize=False).run({"x": X})["y"], np.clip(X, low, high))
    assert [node.op_type for node in model.graph] == ["Clip"]
    assert [value.name for value in model.graph.outputs] == ["y"]


def test_scales_of_each_channel_round_no_longer_either():
    weights = {"s": np.float32([1, 2]), "z": np.int8([0, 0])}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, name="dq"),
    ]
    model = made(nodes, {"x": (FLOAT, [1, 2])}, {"y": (FLOAT, [1, 2])}, weights)
    take_rounding_away(model)
    np.testing.assert_array_equal(Runtime(model, optimize=False).run({"x": np.float32([[0.3, 0.7]])})["y"], np.float32([[0.3, 0.7]]))


def test_half_floats_become_whole_ones_but_inputs_stay_what_they_are():
    model = pair(np.float16(0.5), np.int8(0), TensorProto.FLOAT16)
    take_rounding_away(model)
    assert model.graph.inputs[0].dtype == ir.DataType.FLOAT16
    found = Runtime(model, optimize=False).run({"x": np.float16([0.1, 0.2, 0.3, 0.4, 70])})["y"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.float32([*np.float16([0.1, 0.2, 0.3, 0.4]), 63.5]))


@pytest.mark.parametrize("zeros", [2, 4])
def test_integer_products_of_activations_become_float_ones(zeros):
    random = np.random.default_rng(0)
    codes = random.integers(-127, 128, (6, 3)).astype(np.int8)
    operands = ["q", "w", "z", "wz"][:zeros]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="dynamic"),
        helper.make_node("MatMulInteger", operands if zeros == 4 else ["q", "w", "z"], ["whole"], name="product"),
        helper.make_node("Cast", ["whole"], ["float"], to=FLOAT),
        helper.make_node("Mul", ["float", "s"], ["y"]),
    ]
    model = made(nodes, {"x": (FLOAT, [2, 6])}, {"y": (FLOAT, [2, 3])}, {"w": codes, "wz": np.int8(3)} if zeros == 4 else {"w": codes})
    x = random.normal(size=(2, 6)).astype(np.float32)
    rounded = Runtime(model, optimize=False).run({"x": x})["y"]
    take_rounding_away(model)
    exact = x.astype(np.float64) @ (codes.astype(np.float64) - (3 if zeros == 4 else 0))
    np.testing.assert_allclose(Runtime(model, optimize=False).run({"x": x})["y"], exact, rtol=1e-5, atol=1e-4)
    assert 0 < np.abs(rounded - exact).max() <= (x.max() - x.min()) / 255 / 2 * 1.001 * np.abs(codes.astype(int) - 3).sum(axis=0).max()


def test_the_weights_of_a_graph_round_to_their_codes_wherever_they_are_moved():
    proto = half_scales.half_scales()
    model = ir.from_proto(proto)
    take_rounding_away(model)
    move_weights(model, np.random.default_rng(0))
    stored = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    moved = {node.inputs[0].producer().name: node.inputs[1].const_value.numpy() for node in model.graph if str(node.name).endswith("_somewhere")}
    assert set(moved) == {n.output[0] for n in proto.graph.node if n.output[0].endswith("_weight")}
    for name, by in moved.items():
        stem = name.removesuffix("_weight")
        codes, scale = stored[f"{stem}_codes"], stored[f"{stem}_scale"].astype(np.float64).reshape(-1, *[1] * (by.ndim - 1))
        np.testing.assert_array_equal(np.rint((codes * scale + by) / scale), codes)
        assert np.abs(by / scale).max() > 0.3


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.sampled_from([1, 2, 4]), st.integers(0, 1))
def test_weights_in_blocks_are_moved_by_at_most_half_their_own_step(seed, block, axis):
    random = np.random.default_rng(seed)
    codes = random.integers(-7, 8, (4, 8)).astype(np.int8)
    shape = [4, 8]
    shape[axis] //= block
    scale = random.uniform(0.1, 10, shape).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=axis, block_size=block, name="dq"),
        helper.make_node("MatMul", ["x", "d"], ["y"], name="product"),
    ]
    model = made(nodes, {"x": (FLOAT, [2, 4])}, {"y": (FLOAT, [2, 8])}, {"w": codes, "s": scale})
    before = Runtime(model, optimize=False).run({"x": np.eye(4, dtype=np.float32)[:2]})["y"]
    move_weights(model, np.random.default_rng(seed))
    by = Runtime(model, optimize=False).run({"x": np.eye(4, dtype=np.float32)[:2]})["y"] - before
    assert (np.abs(by) <= 0.5001 * np.repeat(scale, block, axis=axis)[:2]).all()
    assert (by != 0).any()


def test_the_noise_of_one_pair_is_that_of_a_step_uniform_over_its_width(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, 20_000).astype(np.float32)
    step = np.float32(2 / 255)
    model = pair(step, np.int8(0), size=len(x))
    ir.save(model, tmp_path / "model.onnx")
    noise = Runtime(tmp_path / "model.onnx", optimize=False).run({"x": x})["y"] - without_rounding(tmp_path / "model.onnx").run({"x": x})["y"]
    # The mean of n squares of a uniform error has the relative deviation sqrt(4/5 / n): six of them.
    assert np.square(noise).mean() == pytest.approx(step**2 / 12, rel=6 * np.sqrt(0.8 / len(x)))
