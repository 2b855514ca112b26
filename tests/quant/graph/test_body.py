"""What is not quantized is cast to FP16 around Q/DQ nodes, and nothing stands between these and the layers they belong to."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quant.core.dialect import Dialect
from quant.core.documents import LayerChoice, PrecisionPlan
from quant.core.formats import INT8, Range
from quant.graph.body import write_body
from quant.graph.layers import find_layers
from quant.graph.qdq import write_qdq
from quant.graph.runtime import Runtime

DIALECT = Dialect(
    integer=frozenset({"MatMul"}),
    dynamic=frozenset(),
    activations=INT8,
    operands=INT8,
    weights=INT8,
    chained=frozenset(),
    transparent=frozenset(),
    melting=frozenset(),
    integer_bias=frozenset(),
)


@pytest.fixture
def two_products(zoo):
    """x -> first -> Relu -> second -> y"""
    nodes = [zoo.node("MatMul", "x w1", "a", "first"), zoo.node("Relu", "a", "b", "relu"), zoo.node("MatMul", "b w2", "y", "second")]
    return zoo.model(nodes, {"x": [3, 8]}, {"y": [3, 4]}, {"w1": zoo.draw(8, 6), "w2": zoo.draw(6, 4, seed=2)}, opset=23)


def lowered(proto, layers, magnitudes=None, largest=4.0, body="fp16"):
    """Two graphs with the same Q/DQ, in FP32 and with another body, and the plan of the second."""
    graphs = []
    for _ in range(2):
        model = ir.from_proto(proto)
        found = find_layers(model)
        chosen = [layer for layer in found if layer.name in layers]
        names = {layer.node.inputs[i].name for layer in chosen for i in layer.activations}
        write_qdq(model, chosen, dict.fromkeys(names, Range(-largest, largest)), DIALECT)
        graphs.append(model)
    formats = {layer.name: "int8" if layer.name in layers else "fp32" for layer in find_layers(ir.from_proto(proto))}
    choices = tuple(LayerChoice(layer=name, op="MatMul", format=what, reason="told to") for name, what in formats.items())
    plan = write_body(graphs[1], PrecisionPlan(scheme="int8", base="int8", layers=choices), magnitudes or {}, body)
    onnx.checker.check_model(ir.to_proto(graphs[1]), full_check=True)
    return (*graphs, {c.layer: c for c in plan.layers})


def types(model):
    return {n.name: (n.op_type, [v.dtype.name for v in n.inputs if v is not None], n.outputs[0].dtype.name) for n in model.graph}


def test_quantize_takes_and_dequantize_gives_fp16_with_scales_in_fp32(two_products):
    _, half, _ = lowered(two_products, ["first", "second"])
    found = types(half)
    assert found["b_QuantizeLinear"] == ("QuantizeLinear", ["FLOAT16", "FLOAT", "INT8"], "INT8")
    assert found["b_DequantizeLinear"] == ("DequantizeLinear", ["INT8", "FLOAT", "INT8"], "FLOAT16")
    assert found["second_weight_DequantizeLinear"] == ("DequantizeLinear", ["INT8", "FLOAT", "INT8"], "FLOAT16")
    assert found["x_QuantizeLinear"][1][0] == "FLOAT"  # an input is quantized as it comes, without rounding it to FP16 before
    assert [n for n in found.values() if n[0] == "Cast"] == [("Cast", ["FLOAT16"], "FLOAT")]


def test_inputs_and_outputs_stay_as_they_were(two_products):
    full, half, _ = lowered(two_products, ["first"])
    assert [(v.name, v.dtype) for v in (*full.graph.inputs, *full.graph.outputs)] == [(v.name, v.dtype) for v in (*half.graph.inputs, *half.graph.outputs)]


def test_the_numbers_are_those_of_fp32_rounded_to_fp16(two_products, zoo):
    full, half, _ = lowered(two_products, ["first", "second"])
    feed = zoo.feed(two_products)
    expected, found = (Runtime(m, optimize=False).run(feed)["y"] for m in (full, half))
    # Codes may differ by one where FP16 moves a value across the middle between two; there are 6 of them to a sum.
    step = 4.0 / 127 * np.abs(zoo.draw(6, 4, seed=2)).sum(axis=0).max()
    assert 0 < np.abs(found - expected).max() < step


def test_the_plan_says_what_layers_run_in_now(two_products):
    _, _, plan = lowered(two_products, ["first"])
    assert (plan["first"].format, plan["second"].format, plan["second"].reason) == ("int8", "fp16", "told to")


def test_what_would_overflow_stays_fp32_and_the_plan_says_why(two_products):
    _, half, plan = lowered(two_products, ["first"], {"x": 1.0, "a": 40_000.0, "b": 40_000.0, "y": 1.0})
    assert plan["second"].format == "fp32"
    assert plan["second"].reason == "told to; overflow: tensor 'b' reaches 4e+04, FP16 ends at 65504"
    assert {types(half)[name][2] for name in ("first", "relu", "second", "first_weight_DequantizeLinear")} == {"FLOAT"}


def test_a_quantized_layer_whose_input_overflows_reads_fp32_behind_its_codes(two_products):
    _, half, plan = lowered(two_products, ["second"], {"b": 40_000.0}, 40_000.0)
    assert plan["second"].format == "int8"
    assert types(half)["b_DequantizeLinear"][2] == "FLOAT"


def test_codes_that_fp16_and_fp32_read_are_dequantized_for_each(zoo):
    nodes = [zoo.node("MatMul", "x w1", "y", "small"), zoo.node("MatMul", "x w2", "z", "large")]
    proto = zoo.model(nodes, {"x": [3, 8]}, {"y": [3, 6], "z": [3, 6]}, {"w1": zoo.draw(8, 6), "w2": zoo.draw(8, 6, seed=2)}, opset=23)
    full, half, _ = lowered(proto, ["small", "large"], {"z": 40_000.0})
    pairs = {(n.op_type, n.outputs[0].dtype.name) for n in half.graph if n.inputs[0].name == "x_quantized"}
    assert pairs == {("DequantizeLinear", "FLOAT"), ("DequantizeLinear", "FLOAT16")}
    feed = zoo.feed(proto)
    expected, found = (Runtime(m, optimize=False).run(feed)["z"] for m in (full, half))
    np.testing.assert_array_equal(found, expected)


def test_a_bf16_body_keeps_what_fp16_cannot_hold(two_products):
    _, half, plan = lowered(two_products, ["first"], {"a": 1e6, "b": 1e6}, body="bf16")
    found = types(half)
    assert plan["second"].format == "bf16"
    assert found["first_weight_DequantizeLinear"] == ("DequantizeLinear", ["INT8", "FLOAT", "INT8"], "BFLOAT16")
    assert {found[name][2] for name in ("first", "relu", "second")} == {"BFLOAT16"}


def test_an_fp32_body_leaves_the_graph_as_it_is(two_products):
    full, half, plan = lowered(two_products, ["first"], body="fp32")
    assert ir.to_proto(half) == ir.to_proto(full)
    assert plan["second"].format == "fp32"


@pytest.mark.parametrize(("scale", "kind"), [(np.float32(0.1), "FLOAT"), (np.float32(0.125), "FLOAT16")])
def test_the_scale_of_blocks_is_in_the_type_that_they_become_where_it_is_exact(zoo, scale, kind):
    """TensorRT builds nothing from INT4 blocks with a scale of another type; a scale that would be rounded would be another weight."""
    weights = {"w": zoo.draw(8, 6).astype(np.int8), "s": np.full((2, 6), scale)}
    nodes = [zoo.node("DequantizeLinear", "w s", "d", "w_dq", axis=0, block_size=4), zoo.node("MatMul", "x d", "y", "mm")]
    model = ir.from_proto(zoo.model(nodes, {"x": [3, 8]}, {"y": [3, 6]}, weights, opset=23))
    before = Runtime(ir.from_proto(ir.to_proto(model)), optimize=False).run({"x": np.ones((3, 8), np.float32)})["y"]
    write_body(model, PrecisionPlan(scheme="int4", base="int4", layers=(LayerChoice(layer="mm", op="MatMul", format="int4", reason="test"),)), {})
    assert types(model)["w_dq"] == ("DequantizeLinear", ["INT8", kind], "FLOAT16")
    assert set(model.graph.initializers) == {"w", "s_half" if kind == "FLOAT16" else "s"}
    np.testing.assert_allclose(Runtime(model, optimize=False).run({"x": np.ones((3, 8), np.float32)})["y"], before, rtol=2**-9)
