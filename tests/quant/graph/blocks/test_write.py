"""Weights in blocks of four bits: every form computes what the codes stand for, held to NumPy and to ONNX's reference evaluator."""

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from quant.core.dialect import Int4Form
from quant.core.formats import INT4, UINT4
from quant.core.rounding.blocks import BlockGrid
from quant.core.rounding.nearest import round_nearest
from quant.graph.blocks.matrices import block_size_of, int4_obstacle, matrix_of
from quant.graph.blocks.write import BlockWeight, write_blocks
from quant.graph.layers import find_layers
from quant.graph.runtime import Runtime

MICROSOFT = Int4Form(products="matmulnbits", tables="gatherblockquantized", sizes=(32, 16), pads=True, asymmetric=True, accuracy_level=1)
STANDARD = Int4Form(products="dequantize", tables="dequantize", sizes=(32, 16), pads=False, asymmetric=True)
FORMS = {"microsoft": MICROSOFT, "dequantize": STANDARD, "multiply": replace(STANDARD, tables="multiply")}
GRIDS = {"symmetric": INT4, "asymmetric": UINT4}


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def embedding(columns=64):
    """Rows of a table -> product -> Gemm with factors and a turned weight."""
    weights = {"table": draw(512, columns), "w": draw(columns, 24, seed=1), "v": draw(5, 24, seed=2), "b": draw(5, seed=3)}
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["e"], name="embed"),
        helper.make_node("MatMul", ["e", "w"], ["h"], name="middle"),
        helper.make_node("Gemm", ["h", "v", "b"], ["y"], name="last", transB=1, alpha=0.5, beta=2.0),
    ]
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, ["batch"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def written(proto, form, grid):
    """The graph in a form, and what each weight has become, as it was written before."""
    model = ir.from_proto(proto)
    weights, values = {}, {}
    for layer in find_layers(model):
        size = block_size_of(layer, form, None)
        if isinstance(size, str):
            continue
        block = BlockGrid(grid, size)
        rounded = round_nearest(matrix_of(layer), block)
        weights[layer.name], values[layer.name] = BlockWeight(layer, rounded, size), block.values(rounded)
    write_blocks(model, weights, form)
    return model, values


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_every_form_computes_what_the_codes_stand_for(form, grid):
    proto = embedding()
    model, values = written(proto, form, grid)
    assert sorted(values) == ["embed", "last", "middle"] if form.pads else ["embed", "middle"]
    indices = np.array([0, 511, 7, 7])
    last = values.get("last", draw(5, 24, seed=2).astype(np.float64) * 0.5)
    expected = values["embed"][indices] @ values["middle"].T @ last.T + 2 * draw(5, seed=3).astype(np.float64)
    for optimize in (False, True):
        if optimize and form.products == "dequantize":
            continue  # ONNX Runtime then multiplies with activations in INT8
        found = Runtime(model, optimize=optimize).run({"i": indices})["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())  # float32 sums of 64 products


@pytest.mark.parametrize("name", ["dequantize", "multiply"])
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_standard_forms_are_valid_onnx_and_mean_the_same_in_the_reference_evaluator(name, grid):
    model, _ = written(embedding(), FORMS[name], grid)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    feed = {"i": np.array([3, 500])}
    np.testing.assert_allclose(Runtime(model, optimize=False).run(feed)["y"], ReferenceEvaluator(proto).run(None, feed)[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_layers_keep_their_names_and_the_graph_its_inputs_and_outputs(form):
    proto = embedding()
    model, values = written(proto, form, INT4)
    computing = {node.name: node.op_type for node in model.graph if node.name in values}
    products = "MatMulNBits" if form.products == "matmulnbits" else "MatMul"
    assert computing == {"embed": "GatherBlockQuantized" if form is MICROSOFT else "Gather"} | dict.fromkeys(set(values) - {"embed"}, products)
    after = ir.to_proto(model)
    assert [v.SerializeToString() for v in after.graph.output] == [v.SerializeToString() for v in proto.graph.output]
    assert [v.SerializeToString() for v in after.graph.input] == [v.SerializeToString() for v in proto.graph.input]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_weight_takes_four_bits_and_its_scales(form):
    model, values = written(embedding(), form, INT4)
    held = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.name.split("_weight")[0] in values)
    padded = {name: -(-v.shape[1] // 16) * 16 if form.pads else v.shape[1] for name, v in values.items()}
    exact = sum(v.shape[0] * padded[name] / 2 for name, v in values.items())
    scales = sum(4 * v.shape[0] * -(-v.shape[1] // 16) for v in values.values())
    assert exact < held <= exact + scales + 16 + 64 * len(values)


def test_rows_that_blocks_do_not_divide_are_filled_up_or_left_out_with_the_reason():
    layers = {layer.name: layer for layer in find_layers(ir.from_proto(embedding(columns=40)))}
    assert int4_obstacle(layers["middle"], MICROSOFT, block_size=32, embeddings=True) is None
    assert int4_obstacle(layers["middle"], STANDARD, block_size=32, embeddings=True) == "blocks of 32 do not divide its rows of 40"
    assert int4_obstacle(layers["middle"], STANDARD, block_size=None, embeddings=True) == "blocks of 32 or 16 do not divide its rows of 40"
    assert int4_obstacle(layers["embed"], MICROSOFT, block_size=16, embeddings=True) == "blocks of 16 do not divide its rows of 40"
    assert int4_obstacle(layers["middle"], STANDARD, block_size=128, embeddings=True) == "the target has no blocks of 128, only of 16 32"
    two = replace(STANDARD, least_blocks=2)
    long = {layer.name: layer for layer in find_layers(ir.from_proto(embedding(columns=32)))}
    assert block_size_of(long["middle"], two, None) == 16
    assert block_size_of(long["middle"], two, 32) == "its rows of 32 hold fewer than 2 blocks of 32"
    model, values = written(embedding(columns=40), MICROSOFT, UINT4)
    hidden = draw(3, 40, seed=9)
    expected = hidden @ values["middle"].T
    part = ir.from_proto(onnx.utils.Extractor(ir.to_proto(model)).extract_model(["e"], ["h"]))
    np.testing.assert_allclose(Runtime(part).run({"e": hidden})["h"], expected, rtol=1e-4, atol=1e-3)


def one(op, weight, *, inputs="x w", **attributes):
    names = inputs.split()
    rank = ["r"] * weight.ndim if op == "Conv" else ["r", "k"]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], name="layer", **attributes)],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, rank) for n in names if n != "w"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    return find_layers(ir.from_proto(helper.make_model(graph)))[0]


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: one("Conv", draw(4, 3, 3, 3)), "Conv has no form with a weight of 4 bits"),
        (lambda: one("MatMul", draw(2, 32, 32)), "the weight has 3 axes, blocks want 2"),
        (lambda: one("MatMul", draw(32, 32), inputs="w x"), "the weight is the left operand"),
        (lambda: one("Gemm", draw(32, 32), transA=1), "its input is transposed (transA)"),
        (lambda: one("Gemm", draw(32, 32), inputs="x w b", beta=0.5), "its bias is computed, and scaled (beta)"),
        (lambda: find_layers(ir.from_proto(embedding(columns=16)))[0], "the table has only 8,192 values"),
    ],
    ids=["convolution", "stack", "left", "transA", "beta", "small table"],
)
def test_what_cannot_be_written_is_told_why(layer, reason):
    assert int4_obstacle(layer(), MICROSOFT, block_size=None, embeddings=True) == reason


def test_tables_are_left_out_when_asked_and_where_a_target_has_none():
    table = find_layers(ir.from_proto(embedding()))[0]
    assert int4_obstacle(table, MICROSOFT, block_size=None, embeddings=False) == "tables are left out (`embeddings: false`)"
    assert int4_obstacle(table, replace(STANDARD, tables=None), block_size=None, embeddings=True) == "the target reads no tables of 4 bits"
    assert int4_obstacle(table, None, block_size=None, embeddings=True) == "the target reads no weights of 4 bits"
