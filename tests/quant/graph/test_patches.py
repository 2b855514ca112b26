"""Rows and patches times matrices give what layers give, computed by ONNX Runtime."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quant.graph.layers import find_layers
from quant.graph.names import Names
from quant.graph.patches import cut_rows, is_product, matrices, same_rows, write_matrices
from quant.graph.runtime import Runtime

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parent / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)


def conv(weight, shape, **attributes):
    return zoo.model([zoo.node("Conv", "x w", "y", **attributes)], {"x": shape}, {"y": None}, {"w": zoo.draw(*weight)})


GRAPHS = {
    "plain": conv((6, 4, 3, 3), [2, 4, 7, 9]),
    "padded unevenly, with steps and holes": conv((6, 4, 3, 2), [2, 4, 11, 9], pads=[2, 0, 1, 1], strides=[2, 3], dilations=[2, 1]),
    "grouped": conv((6, 2, 3, 3), [2, 4, 7, 7], group=2, pads=[1, 1, 1, 1]),
    "depthwise, two outputs each": conv((8, 1, 3, 3), [1, 4, 6, 6], group=4),
    "valid, said so": conv((3, 4, 2, 2), [1, 4, 5, 5], auto_pad="VALID"),
    "1-D": conv((3, 4, 5), [2, 4, 20], pads=[4, 0], dilations=[2]),
    "3-D": conv((3, 2, 2, 3, 1), [1, 2, 5, 6, 4], strides=[1, 2, 2]),
    "matmul": zoo.ZOO["matmul of rank 3"](),
    "gemm": zoo.ZOO["gemm transB"](),
}


def only_layer(proto):
    model = ir.from_proto(proto)
    [layer] = find_layers(model)
    return model, layer


@pytest.mark.parametrize("graph", GRAPHS)
def test_rows_times_matrices_are_what_the_layer_gives(graph):
    model, layer = only_layer(GRAPHS[graph])
    fed = zoo.feed(GRAPHS[graph])
    rows = cut_rows(layer, fed["x"], 10**6)
    found = np.concatenate(rows @ matrices(layer).transpose(0, 2, 1), axis=1)  # [places, channels]
    [wanted] = Runtime(model).run(fed).values()
    if layer.op == "Conv":
        wanted = np.moveaxis(wanted, 1, -1)
    else:
        wanted = wanted - (fed.get("b", 0) if layer.op == "MatMul" else np.asarray(layer.node.inputs[2].const_value.numpy()))
    np.testing.assert_allclose(found, wanted.reshape(-1, found.shape[1]), rtol=1e-5, atol=1e-5)


def test_few_rows_are_spread_over_all_of_them():
    _, layer = only_layer(GRAPHS["plain"])
    array = zoo.feed(GRAPHS["plain"])["x"]
    everything, some = cut_rows(layer, array, 10**6), cut_rows(layer, array, 7)
    assert everything.shape == (1, 2 * 5 * 7, 4 * 9)
    assert np.array_equal(some, everything[:, [5, 15, 25, 35, 45, 55, 65]])


@pytest.mark.parametrize("graph", GRAPHS)
def test_matrices_that_are_written_are_read_again(graph):
    model, layer = only_layer(GRAPHS[graph])
    wanted = matrices(layer) * np.float32(2) + 1
    write_matrices(model.graph, layer, wanted, Names(model.graph))
    assert np.array_equal(matrices(layer), wanted)


def test_a_weight_that_others_read_is_left_to_them():
    model = ir.from_proto(zoo.ZOO["one weight, two layers"]())
    first, second = find_layers(model)
    before = matrices(second)
    write_matrices(model.graph, first, matrices(first) * 2, Names(model.graph))
    assert np.array_equal(matrices(second), before)
    assert np.array_equal(matrices(first), before * 2)


def test_layers_multiply_the_same_rows_when_they_cut_one_tensor_alike():
    model = ir.from_proto(zoo.ZOO["one input, two layers"]())
    first, second = find_layers(model)
    assert same_rows(first) == same_rows(second)
    second.node.attributes["dilations"] = ir.AttrInt64s("dilations", [2, 2])
    assert same_rows(first) != same_rows(second)


def test_padding_that_depends_on_the_size_is_no_product():
    _, layer = only_layer(conv((3, 4, 2, 2), [1, 4, 5, 5], auto_pad="SAME_UPPER"))
    assert not is_product(layer)
