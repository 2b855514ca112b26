"""What a graph means does not depend on what its products with weights of few bits may be multiplied in."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.graph.plain import plain
from quant.graph.runtime import Runtime
from quant.graph.unrounded import move_weights, take_rounding_away

OUTS, COLUMNS, SIZE = 8, 48, 32  # the last block of a row is short
X = np.random.default_rng(1).normal(size=(5, COLUMNS)).astype(np.float32) * ([100] + [1] * (COLUMNS - 1))


def product(level):
    """y = x Wᵀ in `MatMulNBits`, and W."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 16, (OUTS, 2 * SIZE)).astype(np.uint8)
    scale = random.uniform(0.1, 1, (OUTS, 2)).astype(np.float32)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(OUTS, 2, SIZE // 2)
    told = {"K": COLUMNS, "N": OUTS, "bits": 4, "block_size": SIZE, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], name="product", domain="com.microsoft", **told)
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])] for name, size in (("x", COLUMNS), ("y", OUTS))]
    graph = helper.make_graph([node], "g", *ends, [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scale, "s")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    weights = (codes.astype(np.float64) - 8) * np.repeat(scale, SIZE, axis=1)
    return ir.from_proto(proto), weights[:, :COLUMNS], np.repeat(scale, SIZE, axis=1)[:, :COLUMNS]


@pytest.mark.parametrize("level", [0, 1, 4])
def test_activations_are_not_rounded_in_the_plain_meaning(tmp_path, level):
    model, weights, _ = product(level)
    ir.save(model, tmp_path / "model.onnx")
    feed, exact = {"x": X.astype(np.float32)}, X @ weights.T
    np.testing.assert_allclose(plain(tmp_path / "model.onnx").run(feed)["y"], exact, rtol=1e-5, atol=1e-4)
    step = 100 * np.abs(X).max() / 100 / 127
    rounded = np.abs(Runtime(tmp_path / "model.onnx", optimize=False).run(feed)["y"] - exact).max()
    assert (rounded > step / 100) == (level == 4)


def test_nor_are_they_in_a_graph_without_rounding():
    model, weights, _ = product(4)
    take_rounding_away(model)
    np.testing.assert_allclose(Runtime(model, optimize=False).run({"x": X.astype(np.float32)})["y"], X @ weights.T, rtol=1e-5, atol=1e-4)


def test_its_weights_are_moved_by_at_most_half_a_step_each():
    model, weights, steps = product(1)
    move_weights(model, np.random.default_rng(0))
    assert [value.name for value in model.graph.outputs] == ["y"]
    moved = Runtime(model, optimize=False).run({"x": np.eye(COLUMNS, dtype=np.float32)})["y"].T - weights
    assert (np.abs(moved) <= 0.5001 * steps).all()
    assert np.abs(moved / steps).max() > 0.45
    assert np.abs(moved / steps).mean() == pytest.approx(0.25, abs=6 * np.sqrt(1 / 48 / moved.size))  # uniform: its deviation is 1/√48
