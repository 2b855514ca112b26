"""Weights that several layers read."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.graph.layers import find_layers
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS

TABLE = np.random.default_rng(0).normal(size=(512, 64)).astype(np.float32)


def model(*nodes, outputs, weights=None):
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])]
    shapes = {"e": ["n", 64], "f": ["n", 64], "y": ["n", 512], "s": [512, 64]}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs]
    tensors = [numpy_helper.from_array(a, n) for n, a in {"table": TABLE, **(weights or {})}.items()]
    graph = helper.make_graph(list(nodes), "g", inputs, infos, tensors)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def rows(name, output):
    return helper.make_node("Gather", ["table", "i"], [output], name=name)


def carried_out(graph, target, **options):
    dialect = TARGETS.make(target).dialect
    scheme = SCHEMES.make("int4", {"method": "rtn", **options})
    plan = scheme.plan(graph, find_layers(graph), dialect)
    return scheme.apply(graph, plan, Evidence(), dialect)


@pytest.mark.parametrize("target", ["onnxruntime", "openvino", "tensorrt-rtx"])
def test_two_layers_that_read_one_weight_go_on_reading_one(target):
    graph = model(rows("first", "e"), rows("second", "f"), outputs=["e", "f"])
    assert set(carried_out(graph, target).quantized) == {"first", "second"}
    assert sum(v.const_value.nbytes for v in graph.graph.initializers.values()) < TABLE.nbytes / 6
    found = Runtime(graph, optimize=False).run({"i": np.array([1, 2])})
    assert np.array_equal(found["e"], found["f"])
    assert np.abs(found["e"] - TABLE[1:3]).max() < 0.5


def test_a_weight_that_something_else_reads_in_float_stays_in_float_for_all():
    other = helper.make_node("Exp", ["table"], ["s"], name="exp")
    plan = carried_out(model(rows("embed", "e"), other, outputs=["e", "s"]), "onnxruntime")
    assert {c.layer: (c.format, c.reason) for c in plan.layers} == {"embed": ("fp32", "its weight is also read by 'exp', which stays in float")}


def test_a_tie_holds_along_a_chain_of_exclusions():
    last = helper.make_node("Gemm", ["e", "table"], ["y"], name="last", transB=1)
    graph = model(rows("embed", "e"), last, rows("again", "f"), outputs=["y", "f"])
    plan = carried_out(graph, "onnxruntime", exclude=["last"])
    assert {c.layer: c.format for c in plan.layers} == dict.fromkeys(("embed", "again", "last"), "fp32")


def test_a_table_that_is_a_products_weight_as_well_is_said_to_be_written_twice():
    last = helper.make_node("MatMul", ["e", "turned"], ["y"], name="last")
    plan = carried_out(model(rows("embed", "e"), last, outputs=["y"], weights={"turned": np.ascontiguousarray(TABLE.T)}), "onnxruntime")
    assert {c.layer: c.reason for c in plan.layers if c.layer == "embed"} == {"embed": "int4 by default; tied to 'last': its codes are written a second time"}
