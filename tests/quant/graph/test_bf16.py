"""BF16 as FP32 with rounding: held to NumPy's own BF16."""

import numpy as np
import onnx_ir as ir
import pytest

from quant.graph.bf16 import has_bf16, write_rounding
from quant.graph.fp16 import BFLOAT16, keep_reasons, write_fp16
from quant.graph.runtime import Runtime


def rounded(array):
    return np.asarray(array).astype(BFLOAT16.numpy()).astype(np.float32)


@pytest.fixture
def product(zoo):
    nodes = [zoo.node("MatMul", "x w", "a"), zoo.node("Add", "a b", "c"), zoo.node("Relu", "c", "y")]
    return zoo.model(nodes, {"x": [3, 8]}, {"y": [3, 5]}, {"w": zoo.draw(8, 5), "b": zoo.draw(5, seed=2)}, opset=23)


def in_bf16(proto):
    model = ir.from_proto(proto)
    keep = keep_reasons(model, {}, limit=float("inf"), dtype=BFLOAT16)
    assert not keep
    write_fp16(model, keep=keep, dtype=BFLOAT16)
    return model


def test_each_result_is_rounded_to_bf16_and_sums_are_not(product, zoo):
    model = in_bf16(product)
    assert has_bf16(model)
    write_rounding(model)
    feed = zoo.feed(product)
    x, w, b = rounded(feed["x"]), rounded(zoo.draw(8, 5)), rounded(zoo.draw(5, seed=2))
    expected = np.maximum(rounded(rounded(x.astype(np.float64) @ w) + b), 0)
    found = Runtime(model, optimize=False).run(feed)["y"]
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - Runtime(ir.from_proto(product)).run(feed)["y"]).max() > 0


def test_a_graph_without_bf16_has_none(product):
    assert not has_bf16(ir.from_proto(product))


def test_ties_are_rounded_to_even():
    # 1 + 2**-8 lies midway between 1 and the next BF16 number, 1 + 2**-7; 1 + 3 * 2**-8 between that and 1 + 2**-6.
    values = np.float32([1 + 2**-8, 1 + 3 * 2**-8])
    np.testing.assert_array_equal(rounded(values), [1, 1 + 2**-6])
