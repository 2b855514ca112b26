"""Groups of layers that share a format, on graphs whose structure is known."""

import onnx_ir as ir
import pytest

from quant.errors import PlanError
from quant.graph.layers import find_layers
from quant.graph.together import Group, together, within
from quant.targets import TARGETS


def groups(proto, target=None, **how):
    layers = find_layers(ir.from_proto(proto))
    return together(layers, None if target is None else TARGETS.make(target).dialect, **how)


def names(found):
    return [group.layers for group in found]


def attention(zoo):
    """Q, K and V of one tensor, scores, a residual sum, and a gated feed-forward part."""
    nodes = [
        zoo.node("MatMul", "x wq", "q", "q"),
        zoo.node("MatMul", "x wk", "k", "k"),
        zoo.node("Identity", "x", "copy"),
        zoo.node("MatMul", "copy wv", "v", "v"),
        zoo.node("Transpose", "k", "kt", perm=[0, 2, 1]),
        zoo.node("MatMul", "q kt", "s", "scores"),
        zoo.node("Softmax", "s", "p", axis=-1),
        zoo.node("MatMul", "p v", "c", "context"),
        zoo.node("MatMul", "c wo", "o", "out"),
        zoo.node("Add", "o x", "r"),
        zoo.node("MatMul", "r wg", "g", "gate"),
        zoo.node("MatMul", "r wu", "u", "up"),
        zoo.node("Sigmoid", "g", "sg"),
        zoo.node("Mul", "sg u", "m"),
        zoo.node("MatMul", "m wd", "d", "down"),
        zoo.node("Add", "d r", "y"),
    ]
    weights = {name: zoo.draw(8, 8, seed=n) for n, name in enumerate(("wq", "wk", "wv", "wo", "wg", "wu", "wd"))}
    return zoo.model(nodes, {"x": ["N", 4, 8]}, {"y": None}, weights)


def residual(zoo):
    """Two blocks with skips of their own tensor behind one whose skip is a layer."""
    nodes = [
        zoo.node("Conv", "x w1", "a", "stem"),
        zoo.node("Relu", "a", "ar"),
        zoo.node("Conv", "ar w2", "b", "first"),
        zoo.node("Conv", "b w3", "c", "second"),
        zoo.node("Conv", "ar w4", "d", "skip"),
        zoo.node("Add", "c d", "s1", "sum1"),
        zoo.node("Relu", "s1", "r1", "relu1"),
        zoo.node("Conv", "r1 w5", "e", "third"),
        zoo.node("Add", "e r1", "s2", "sum2"),
        zoo.node("Relu", "s2", "r2"),
        zoo.node("Conv", "r2 w6", "f", "fourth"),
        zoo.node("Add", "f r2", "y"),
    ]
    weights = {"w1": zoo.draw(4, 3, 1, 1)} | {f"w{n}": zoo.draw(4, 4, 1, 1, seed=n) for n in range(2, 7)}
    return zoo.model(nodes, {"x": ["N", 3, 6, 6]}, {"y": None}, weights)


def concatenated(zoo):
    nodes = [
        zoo.node("Conv", "x w1", "a", "left"),
        zoo.node("Relu", "a", "ar"),
        zoo.node("Conv", "x2 w2", "b", "right"),
        zoo.node("MaxPool", "b", "bp", kernel_shape=[1, 1]),
        zoo.node("Concat", "ar bp x", "c", axis=1),
        zoo.node("Conv", "c w3", "y", "last"),
    ]
    weights = {"w1": zoo.draw(4, 3, 1, 1), "w2": zoo.draw(4, 3, 1, 1), "w3": zoo.draw(4, 11, 1, 1)}
    return zoo.model(nodes, {"x": ["N", 3, 6, 6], "x2": ["N", 3, 6, 6]}, {"y": None}, weights)


def test_products_of_one_tensor_are_a_group_and_a_residual_stream_ties_no_blocks_together(zoo):
    assert groups(attention(zoo)) == (Group(("q", "k", "v"), ("reads",), ("x",)), Group(("gate", "up"), ("reads",), ("r",)))


def test_operands_of_a_sum_are_bound_where_layers_make_them_and_not_through_another_sum(zoo):
    assert groups(residual(zoo), "onnxruntime") == (Group(("first", "second", "skip"), ("reads", "sum"), ("ar", "s1")),)


@pytest.mark.parametrize("kind", TARGETS.kinds())
def test_sums_bind_only_where_the_target_runs_them_in_integers(zoo, kind):
    dialect = TARGETS.make(kind).dialect
    found = names(groups(residual(zoo), kind))
    assert found == ([("first", "second", "skip")] if "Add" in dialect.chained or dialect.residual else [("first", "skip")])
    assert names(groups(concatenated(zoo), kind)) == ([("left", "right")] if "Concat" in dialect.chained else [])


def test_layers_that_are_concatenated_are_bound_past_what_runs_on_codes(zoo):
    assert groups(concatenated(zoo)) == (Group(("left", "right"), ("concat",), ("c",)),)


def test_a_bias_is_no_sum_of_two_layers(zoo):
    nodes = [zoo.node("MatMul", "x w", "a", "one"), zoo.node("Add", "a b", "s"), zoo.node("MatMul", "z v", "c", "two"), zoo.node("Add", "s c", "y")]
    proto = zoo.model(nodes, {"x": ["N", 8], "z": ["N", 8]}, {"y": None}, {"w": zoo.draw(8, 8), "v": zoo.draw(8, 8), "b": zoo.draw(8)})
    assert groups(proto) == (Group(("one", "two"), ("sum",), ("y",)),)


def test_the_recipe_adds_groups_and_takes_layers_out(zoo):
    proto = attention(zoo)
    assert names(groups(proto, more=[["out", "down"]])) == [("q", "k", "v"), ("out", "down"), ("gate", "up")]
    assert names(groups(proto, more=[["v", "out"]])) == [("q", "k", "v", "out"), ("gate", "up")]
    assert names(groups(proto, apart=["v", "gate"])) == [("q", "k")]
    with pytest.raises(PlanError, match="pattern 'gaet' matches no layer"):
        groups(proto, more=[["gaet"]])


def test_tables_and_products_of_two_activations_are_bound_by_nothing_they_read(zoo, animal):
    layers = find_layers(ir.from_proto(zoo.ZOO[animal]()))
    weighted = {layer.name for layer in layers if layer.weight is not None and layer.op != "Gather"}
    for group in together(layers):
        assert len(group.layers) > 1
        assert set(group.layers) <= weighted or set(group.bonds) - {"reads"}


def test_what_runs_within_a_layer_is_named(zoo):
    by_name = {layer.name: layer for layer in find_layers(ir.from_proto(residual(zoo)))}
    assert [node.name for node in within(by_name["second"])] == ["sum1", "relu1"]
    assert [node.op_type for node in within(by_name["stem"])] == ["Relu"]
    assert within(by_name["first"]) == ()
