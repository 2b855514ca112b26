"""FP16 and BF16 as FP32 with rounding: held to NumPy's own."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from quant.graph.fp16 import BFLOAT16, FLOAT16, keep_reasons, write_fp16
from quant.graph.halves import round_halves
from quant.graph.plain import coarse, plain
from quant.graph.runtime import Runtime

BOTH = pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=["fp16", "bf16"])


def rounded(array, dtype=BFLOAT16):
    return np.asarray(array).astype(dtype.numpy()).astype(np.float32)


@pytest.fixture
def product(zoo):
    nodes = [zoo.node("MatMul", "x w", "a"), zoo.node("Add", "a b", "c"), zoo.node("Relu", "c", "y")]
    return zoo.model(nodes, {"x": [3, 8]}, {"y": [3, 5]}, {"w": zoo.draw(8, 5), "b": zoo.draw(5, seed=2)}, opset=23)


def in_halves(proto, dtype):
    model = ir.from_proto(proto)
    keep = keep_reasons(model, {}, limit=float("inf"), dtype=dtype)
    assert not keep
    write_fp16(model, keep=keep, dtype=dtype)
    return model


@BOTH
def test_each_result_is_rounded_and_sums_are_not(product, zoo, dtype):
    model = in_halves(product, dtype)
    assert round_halves(model)
    feed = zoo.feed(product)
    x, w, b = (rounded(array, dtype) for array in (feed["x"], zoo.draw(8, 5), zoo.draw(5, seed=2)))
    expected = np.maximum(rounded(rounded(x.astype(np.float64) @ w, dtype) + b, dtype), 0)
    found = Runtime(model, optimize=False).run(feed)["y"]
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - Runtime(ir.from_proto(product)).run(feed)["y"]).max() > 0


def test_inputs_and_outputs_of_halves_keep_their_names_and_types(zoo):
    proto = zoo.model([zoo.node("MatMul", "x w", "a"), zoo.node("Relu", "a", "y")], {"x": [3, 8]}, {"y": [3, 5]}, {"w": zoo.draw(8, 5)}, opset=21)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    del proto.graph.value_info[:]
    w = zoo.draw(8, 5).astype(np.float16)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(w, "w"))
    model = ir.from_proto(proto)
    assert round_halves(model)
    x = zoo.draw(3, 8, seed=3).astype(np.float16)
    found = Runtime(model, optimize=False).run({"x": x})["y"]
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, np.maximum((x.astype(np.float64) @ w).astype(np.float16), 0))


def test_what_is_nested_reads_halves_as_before(zoo):
    def branch(op):
        body = [helper.make_node(op, ["a"], ["inner"])]
        return helper.make_graph(body, op, [], [helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT16, [3, 5])])

    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("MatMul", ["half", "w"], ["a"]),
        helper.make_node("If", ["yes"], ["chosen"], then_branch=branch("Neg"), else_branch=branch("Abs")),
        helper.make_node("Add", ["chosen", "a"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    w = zoo.draw(8, 5).astype(np.float16)
    proto = zoo.model(nodes, {"x": [3, 8]}, {"y": [3, 5]}, {"w": w, "yes": np.array(False)}, opset=21)
    model = ir.from_proto(proto)
    assert round_halves(model)
    a = rounded(rounded(zoo.feed(proto)["x"], FLOAT16).astype(np.float64) @ w, FLOAT16)
    np.testing.assert_array_equal(Runtime(model, optimize=False).run(zoo.feed(proto))["y"], rounded(np.abs(a) + a, FLOAT16))


def test_a_graph_without_halves_is_left_alone(product):
    model = ir.from_proto(product)
    assert not round_halves(model)
    assert [node.op_type for node in model.graph] == ["MatMul", "Add", "Relu"]


def test_ties_are_rounded_to_even():
    # 1 + 2**-8 lies midway between 1 and the next BF16 number, 1 + 2**-7; 1 + 3 * 2**-8 between that and 1 + 2**-6.
    values = np.float32([1 + 2**-8, 1 + 3 * 2**-8])
    np.testing.assert_array_equal(rounded(values), [1, 1 + 2**-6])


@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_an_engine_may_round_a_product_before_its_bias(zoo, tmp_path, op):
    w, b = (zoo.draw(*size, seed=seed).astype(np.float16) for seed, size in ((1, (5, 8, 1) if op == "Conv" else (8, 5)), (2, (5,))))
    nodes = [zoo.node("Cast", "x", "half", to=onnx.TensorProto.FLOAT16), zoo.node(op, "half w b", "a"), zoo.node("Cast", "a", "y", to=onnx.TensorProto.FLOAT)]
    tail = [7] if op == "Conv" else []
    proto = zoo.model(nodes, {"x": [3, 8, *tail]}, {"y": [3, 5, *tail]}, {"w": w, "b": b}, opset=21)
    onnx.save(proto, tmp_path / "model.onnx")
    x, w, b = (v.astype(np.float64) for v in (rounded(zoo.feed(proto)["x"], FLOAT16), w, b))
    product, bias = (np.einsum("nci,oc->noi", x, w[..., 0]), b[:, None]) if op == "Conv" else (x @ w, b)
    once, twice = rounded(product + bias, FLOAT16), rounded(rounded(product, FLOAT16) + bias, FLOAT16)
    assert (once != twice).any()
    np.testing.assert_array_equal(plain(tmp_path / "model.onnx").run(zoo.feed(proto))["y"], once)
    np.testing.assert_array_equal(coarse(tmp_path / "model.onnx").run(zoo.feed(proto))["y"], twice)


def test_nothing_is_rounded_more_often_where_nothing_is_fp16(product, tmp_path):
    onnx.save(product, tmp_path / "model.onnx")
    assert coarse(tmp_path / "model.onnx") is None
