"""FP16 and operators whose output type an attribute says."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from quant.graph.fp16 import keep_reasons, takes_fp16, write_fp16
from quant.graph.runtime import Runtime


def graph_with_casts():
    """A Cast of a float to a float, as exporters leave behind, and one of an integer, between products."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Cast", ["a"], ["b"], name="same", to=TensorProto.FLOAT),
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Cast", ["s"], ["f"], name="number", to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["f"], ["total"], name="sum", keepdims=0),
        helper.make_node("Mul", ["b", "total"], ["y"], name="scale"),
    ]
    graph = helper.make_graph(
        nodes,
        "casts",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor("w", TensorProto.FLOAT, [3, 2], np.arange(6, dtype=np.float32) / 8)],
        value_info=[
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("a", ["N", 2]), ("b", ["N", 2]), ("f", [2]), ("total", []))
        ],
    )
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def test_a_cast_of_a_float_stays_as_it_is_and_the_engine_takes_the_graph():
    model = graph_with_casts()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = x @ (np.arange(6, dtype=np.float32).reshape(3, 2) / 8) * 5  # the sum of the shape [2, 3]
    write_fp16(model, keep=set(keep_reasons(model, {}, limit=65504.0)))
    assert {node.name for node in model.graph} >= {"first", "same", "number"}
    np.testing.assert_array_equal(Runtime(model).run({"x": x})["y"], expected)  # small enough to be exact in FP16


@pytest.mark.parametrize("op", ["Cast", "RandomNormalLike", "ConstantOfShape"])
def test_operators_whose_type_an_attribute_says_have_no_fp16_form(op):
    assert not takes_fp16("", op, 17)


@pytest.mark.parametrize("op", ["MatMul", "Conv", "LSTM", "Softmax", "CastLike", "Where", "Gather"])
def test_operators_that_give_what_they_get_have_one(op):
    assert takes_fp16("", op, 17)
