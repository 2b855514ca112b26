"""Files need not say the types of inner tensors; later steps go by them."""

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from quant.graph.importing.types import infer_types


def _model(*inner):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["y"], name="second"),
        helper.make_node("Shape", ["a"], ["s"], name="third"),
    ]
    ends = (
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4]),
            helper.make_tensor_value_info("s", TensorProto.INT64, [2]),
        ],
    )
    graph = helper.make_graph(nodes, "g", *ends, value_info=list(inner))
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def _value(model, name):
    return next(v for node in model.graph for v in node.outputs if v.name == name)


def test_a_tensor_without_a_type_gets_the_one_that_onnx_infers():
    model = _model()
    assert _value(model, "a").dtype is None
    assert infer_types(model) == 1
    assert _value(model, "a").dtype == ir.DataType.FLOAT
    assert [str(d) for d in _value(model, "a").shape] == ["N", "4"]
    assert infer_types(model) == 0
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_what_the_file_says_stays():
    model = _model()
    infer_types(model)
    assert [str(d) for d in _value(model, "y").shape] == ["batch", "4"]
    known = _model(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["rows", "columns"]))
    assert infer_types(known) == 0
    assert [str(d) for d in _value(known, "a").shape] == ["rows", "columns"]
