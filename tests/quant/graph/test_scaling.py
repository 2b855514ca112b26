"""Moving scale from activations into weights: the function stays, and the division goes where it is free."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from quant.graph.layers import find_layers
from quant.graph.scaling import by_tensor, divide, rows_in, scalable

R = np.random.default_rng(11)
W = R.normal(size=(6, 4)).astype(np.float32)
SCALE = np.exp(R.normal(size=6))
X = R.normal(size=(2, 3, 6)).astype(np.float32)


def model(nodes, weights, outputs=("y",), opset=17):
    tensors = [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in weights.items()]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "T", 6])]
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    made = helper.make_model(helper.make_graph(nodes, "g", infos, outs, tensors), opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return ir.from_proto(onnx.shape_inference.infer_shapes(made))


def run(graph, x=X):
    return ReferenceEvaluator(ir.to_proto(graph)).run(None, {"x": x})


def divided(graph, tensor):
    layers = by_tensor(find_layers(graph))[tensor]
    value = next(v for v in (*graph.graph.inputs, *(v for n in graph.graph for v in n.outputs)) if v.name == tensor)
    return divide(graph.graph, value, SCALE, layers)


NORM = helper.make_node("LayerNormalization", ["x", "g", "b"], ["h"], name="norm", axis=-1)
PRODUCT = helper.make_node("MatMul", ["h", "w"], ["y"], name="m")
GB = {"g": R.normal(size=6), "b": R.normal(size=6)}


@pytest.mark.parametrize(
    ("nodes", "weights", "tensor", "free"),
    [
        ([NORM, PRODUCT], {**GB, "w": W}, "h", True),
        ([helper.make_node("Mul", ["x", "g"], ["h"], name="mul"), PRODUCT], {"g": GB["g"], "w": W}, "h", True),
        ([NORM, PRODUCT, helper.make_node("ReduceSum", ["h"], ["s"]), helper.make_node("Sub", ["y", "s"], ["z"])], {**GB, "w": W}, "h", False),
        ([helper.make_node("MatMul", ["x", "w"], ["y"], name="m")], {"w": W}, "x", False),
        ([helper.make_node("Relu", ["x"], ["h"]), PRODUCT], {"w": W}, "h", False),
    ],
    ids=["normalization", "factor", "normalization that another reads", "input", "activation function"],
)  # fmt: skip
def test_the_function_stays_and_the_division_is_free_where_a_factor_can_take_it(nodes, weights, tensor, free):
    graph = model(nodes, weights)
    before, count = run(graph), len(graph.graph)
    where = divided(graph, tensor)
    after = run(graph)
    # Every product of `in` terms is rounded anew: some units in the last place of the largest term.
    np.testing.assert_allclose(after[0], before[0], rtol=0, atol=64 * np.finfo(np.float32).eps * np.abs(before[0]).max())
    assert (len(graph.graph) == count) == free, where
    layer = next(layer for layer in find_layers(graph) if layer.name == "m")
    np.testing.assert_allclose(rows_in(layer), W * SCALE[:, None], rtol=1e-6)


def test_layers_that_read_one_tensor_are_divided_together_and_a_weight_that_another_layer_shares_is_copied():
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["a"], name="one"),
        helper.make_node("MatMul", ["h", "v"], ["b"], name="two"),
        helper.make_node("MatMul", ["x", "w"], ["c"], name="other"),
    ]
    graph = model(nodes, {"w": W, "v": -W}, outputs=("a", "b", "c"))
    before = run(graph)
    divided(graph, "h")
    for found, wanted in zip(run(graph), before, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=64 * np.finfo(np.float32).eps * np.abs(wanted).max())
    layers = {layer.name: rows_in(layer) for layer in find_layers(graph)}
    np.testing.assert_array_equal(layers["other"], W)
    assert not np.array_equal(layers["one"], W)


@pytest.mark.parametrize(
    ("node", "shape", "taken"),
    [
        (helper.make_node("Gemm", ["x", "w"], ["y"], name="m"), (6, 4), True),
        (helper.make_node("Gemm", ["x", "w"], ["y"], name="m", transB=1), (4, 6), True),
        (helper.make_node("Gemm", ["x", "w"], ["y"], name="m", transA=1), (6, 4), False),
        (helper.make_node("MatMul", ["w", "x"], ["y"], name="m"), (4, 6), False),
        (helper.make_node("MatMul", ["x", "w"], ["y"], name="m"), (2, 6, 4), False),
    ],
)
def test_only_rows_times_a_constant_matrix_can_be_scaled(node, shape, taken):
    weights = R.normal(size=shape).astype(np.float32)
    made = ir.from_proto(
        helper.make_model(
            helper.make_graph(
                [node],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 6])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [numpy_helper.from_array(weights, "w")],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
        )
    )
    [layer] = find_layers(made)
    assert scalable(layer) == taken
    if taken:
        np.testing.assert_array_equal(rows_in(layer), weights.T if shape == (4, 6) else weights)


GATE = helper.make_node("Sigmoid", ["x"], ["gate"])
U = R.normal(size=(6, 6)).astype(np.float32)


def up(*nodes):
    """A gated unit: Sigmoid(x) times what `nodes` make of x, called `u`, before the product."""
    return [GATE, *nodes, helper.make_node("Mul", ["gate", "u"], ["h"], name="gated"), PRODUCT]


@pytest.mark.parametrize(
    ("nodes", "free"),
    [
        (up(helper.make_node("MatMul", ["x", "v"], ["u"], name="up")), True),
        (up(helper.make_node("MatMul", ["x", "v"], ["n"], name="up"), helper.make_node("Add", ["b", "n"], ["u"])), True),
        (up(helper.make_node("MatMul", ["x", "v"], ["u"], name="up"), helper.make_node("Identity", ["u"], ["z"])), False),
        (up(helper.make_node("MatMul", ["x", "v"], ["n"], name="up"), helper.make_node("Relu", ["n"], ["u"])), False),
        (up(helper.make_node("MatMul", ["x", "v"], ["n"], name="up"), helper.make_node("Add", ["n", "x"], ["u"])), False),
    ],
    ids=["a product", "a product and a row", "a product that another reads", "behind an activation function", "plus a computed tensor"],
)
def test_a_gated_unit_takes_the_division_into_the_layer_of_its_open_side(nodes, free):
    outputs = ("y", "z") if any("z" in node.output for node in nodes) else ("y",)
    graph = model(nodes, {"v": U, "b": GB["b"], "w": W}, outputs)
    before, count = run(graph), len(graph.graph)
    where = divided(graph, "h")
    for now, was in zip(run(graph), before, strict=True):
        # Two products one behind the other, each rounded anew.
        np.testing.assert_allclose(now, was, rtol=0, atol=128 * np.finfo(np.float32).eps * np.abs(was).max())
    assert (len(graph.graph) == count) == free, where
    assert (where == "folded into the weight of up") == free


def test_the_bias_of_a_gemm_takes_its_share_of_the_division():
    nodes = [
        helper.make_node("Reshape", ["x", "to"], ["r"]),
        helper.make_node("Gemm", ["r", "v", "b"], ["u"], name="up", transB=1, beta=0.5),
        helper.make_node("Sigmoid", ["r"], ["gate"]),
        helper.make_node("Mul", ["u", "gate"], ["h"]),
        PRODUCT,
    ]
    graph = model(nodes, {"v": U, "b": GB["b"], "w": W})
    graph.graph.initializers["to"] = ir.Value(
        name="to", const_value=ir.tensor(np.int64([-1, 6]), name="to"), type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([2])
    )
    for node in graph.graph:
        for position, value in enumerate(node.inputs):
            if value is not None and value.name == "to":
                node.replace_input_with(position, graph.graph.initializers["to"])
    before = run(graph)
    assert divided(graph, "h") == "folded into the weight of up"
    np.testing.assert_allclose(run(graph)[0], before[0], rtol=0, atol=128 * np.finfo(np.float32).eps * np.abs(before[0]).max())
