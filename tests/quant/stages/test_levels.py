"""Products with weights of 4 bits are multiplied in INT8 where that costs less than the 4 bits, and in FP32 where it does not."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.core.dialect import Int4Form
from quant.core.formats import INT4
from quant.core.rounding.blocks import BlockGrid
from quant.core.rounding.nearest import round_nearest
from quant.graph.blocks.matrices import matrix_of
from quant.graph.blocks.write import BlockWeight, write_blocks
from quant.graph.layers import find_layers
from quant.graph.model import attribute
from quant.graph.runtime import Runtime
from quant.stages.levels import settle_levels

SIZE, ROWS = 64, 24
OPEN = Int4Form(products="matmulnbits", tables=None, sizes=(32,), pads=True, asymmetric=True, accuracy_level=None)
LARGE = 1e4


def two_products(factor):
    """Two products in FP32, the second behind `factor` to its first channel, and a column of weights divided by that again."""
    random = np.random.default_rng(0)
    first, second = (random.normal(size=(SIZE, SIZE)).astype(np.float32) / 8 for _ in range(2))
    factors = np.ones(SIZE, np.float32)
    factors[0] = factor
    weights = {"w": first, "v": (second / factors[:, None]).astype(np.float32), "f": factors}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Mul", ["h", "f"], ["m"], name="factors"),
        helper.make_node("MatMul", ["m", "v"], ["y"], name="second"),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", SIZE])] for name in "xy"]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(a, n) for n, a in weights.items()])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def in_blocks(factor, form=OPEN):
    model = two_products(factor)
    grid = BlockGrid(INT4, 32)
    write_blocks(model, {layer.name: BlockWeight(layer, round_nearest(matrix_of(layer), grid), 32) for layer in find_layers(model)}, form)
    return model


def levels(model):
    return {node.name: attribute(node, "accuracy_level", 0) for node in model.graph if node.op_type == "MatMulNBits"}


FEEDS = [{"x": np.random.default_rng(seed).normal(size=(ROWS, SIZE)).astype(np.float32)} for seed in (1, 2)]


def off(model, exact):
    found, wanted = (np.concatenate([Runtime(m, optimize=False).run(feed)["y"] for feed in FEEDS]) for m in (model, exact))
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def test_even_activations_are_rounded_in_int8():
    model = in_blocks(1.0)
    assert settle_levels(model, FEEDS, Runtime(two_products(1.0)).run) == {}
    assert levels(model) == {"first": 4, "second": 4}


def test_one_large_activation_in_a_block_is_found_by_what_it_costs_and_its_layer_alone_multiplied_in_fp32():
    model, exact = in_blocks(LARGE), two_products(LARGE)
    exact.graph.initializers["v"].const_value = ir.tensor(np.where(np.arange(SIZE)[:, None] == 0, 0, exact.graph.initializers["v"].const_value.numpy()))
    before = off(model, exact)
    said = settle_levels(model, FEEDS, Runtime(exact).run)
    assert levels(model) == {"first": 4, "second": 1}
    assert list(said) == ["second"]
    assert said["second"].startswith("multiplied in FP32: in INT8, activations cost ")
    # Behind a factor of 10,000 a step is 80 times what an ordinary value is: all of them round to 0, and 31 of 64 terms of each sum are lost.
    assert before > 0.5
    assert off(model, exact) < 0.25  # two products in 4 bits, each a tenth off


def test_the_same_layers_are_chosen_again():
    exact = two_products(LARGE)
    found = [settle_levels(in_blocks(LARGE), FEEDS, Runtime(exact).run) for _ in range(2)]
    assert found[0] == found[1]


@pytest.mark.parametrize("level", [0, 1])
def test_a_level_that_is_given_stays(level):
    model = in_blocks(LARGE, Int4Form(products="matmulnbits", tables=None, sizes=(32,), pads=True, asymmetric=True, accuracy_level=level))
    assert settle_levels(model, FEEDS, Runtime(two_products(LARGE)).run) == {}
    assert levels(model) == {"first": level, "second": level}


def test_without_inputs_nothing_is_known_and_nothing_changed():
    model = in_blocks(LARGE)
    assert settle_levels(model, [], Runtime(two_products(LARGE)).run) == {}
    assert levels(model) == {"first": 4, "second": 4}
