"""The graph as far as a picture shows it."""

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from quant.engine.drawing import layer_graph
from quant.graph.layers import find_layers


def drawn(nodes, *, inputs=("x",), outputs=("y",), weights=("w", "v", "u")):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, list(read), [made], name=name) for op, read, made, name in nodes],
        "g",
        [value(name, TensorProto.FLOAT, [4, 4]) for name in inputs],
        [value(name, TensorProto.FLOAT, [4, 4]) for name in outputs],
        [numpy_helper.from_array(np.eye(4, dtype=np.float32), name) for name in weights],
    )
    model = ir.serde.deserialize_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    found = layer_graph(find_layers(model))
    return None if found is None else [(part.kind, part.name, part.reads) for part in found.parts]


def test_what_reads_one_part_alone_belongs_to_it_and_what_reads_two_is_a_join():
    nodes = [
        ("MatMul", "xw", "a", "first"),
        ("Relu", "a", "b", "relu"),
        ("Sigmoid", "b", "c", "sigmoid"),
        ("Mul", "bc", "d", "silu"),  # both from the first layer: no join
        ("MatMul", "dv", "e", "second"),
        ("Add", "ea", "f", "residual"),
        ("Relu", "f", "y", "last"),
    ]
    assert drawn(nodes) == [
        ("input", "x", ()),
        ("layer", "first", (0,)),
        ("layer", "second", (1,)),
        ("join", "residual", (2, 1)),
        ("output", "y", (3,)),
    ]


def test_shapes_connect_nothing_and_what_nobody_needs_is_left_out():
    nodes = [
        ("MatMul", "xw", "a", "one"),
        ("Shape", "z", "s", "shape"),
        ("Reshape", "as", "b", "reshape"),
        ("Add", "az", "dead", "dead end"),
        ("MatMul", "bv", "y", "two"),
    ]
    assert drawn(nodes, inputs=("x", "z")) == [("input", "x", ()), ("layer", "one", (0,)), ("layer", "two", (1,)), ("output", "y", (2,))]


def test_a_product_of_two_activations_reads_both():
    nodes = [("MatMul", "xw", "a", "q"), ("MatMul", "xv", "b", "k"), ("MatMul", "ab", "y", "scores")]
    assert drawn(nodes)[3] == ("layer", "scores", (1, 2))


def test_what_a_nested_graph_reads_is_read_by_its_node():
    value = helper.make_tensor_value_info
    branch = helper.make_graph([helper.make_node("Identity", ["a"], ["t"])], "then", [], [value("t", TensorProto.FLOAT, [4, 4])])
    other = helper.make_graph([helper.make_node("Identity", ["b"], ["e"])], "else", [], [value("e", TensorProto.FLOAT, [4, 4])])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="one"),
        helper.make_node("MatMul", ["x", "v"], ["b"], name="two"),
        helper.make_node("If", ["flag"], ["y"], name="choose", then_branch=branch, else_branch=other),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [4, 4]), value("flag", TensorProto.BOOL, [])],
        [value("y", TensorProto.FLOAT, [4, 4])],
        [numpy_helper.from_array(np.eye(4, dtype=np.float32), name) for name in "wv"],
    )
    model = ir.serde.deserialize_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    found = layer_graph(find_layers(model))
    assert [(part.name, tuple(sorted(part.reads))) for part in found.parts] == [
        ("x", ()),
        ("flag", ()),
        ("one", (0,)),
        ("two", (0,)),
        ("choose", (1, 2, 3)),
        ("y", (4,)),
    ]


def test_a_model_without_layers_has_no_picture():
    assert drawn([("Relu", "x", "y", "relu")]) is None
