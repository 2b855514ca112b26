"""Q/DQ around float weights, frozen into codes later: what can be trained in between is what would have been written at once."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from quant.core.formats import Range
from quant.core.formats.narrowed import narrowed
from quant.graph.layers import find_layers
from quant.graph.points import insertion_points
from quant.graph.qdq import freeze_qdq, place_qdq, write_qdq
from quant.graph.weights import held, hold
from quant.targets import TARGETS

DIALECT = TARGETS.make("onnxruntime").dialect


def ranges(model, layers, dialect=DIALECT):
    return {name: Range(-2.0, 3.0) for name in insertion_points(model, layers, dialect)}


def written(proto, how, dialect=DIALECT):
    model = ir.from_proto(proto)
    layers = find_layers(model)
    chosen = ranges(model, layers, dialect)
    if how == "at once":
        write_qdq(model, layers, chosen, dialect)
        return model
    placed = place_qdq(model, layers, chosen, dialect)
    if how == "later":
        freeze_qdq(model, placed)
    return model


@pytest.mark.parametrize("graph", ["residual with relu", "attention", "gemm with factors", "relu"])
def test_freezing_later_computes_what_writing_at_once_does(zoo, graph):
    proto = zoo.ZOO[graph]()
    feed = zoo.feed(proto, 1)
    at_once, later, in_float = (ReferenceEvaluator(ir.to_proto(written(proto, how))).run(None, feed) for how in ("at once", "later", "placed"))
    for one, two, three in zip(at_once, later, in_float, strict=True):
        np.testing.assert_array_equal(one, two)
        assert np.abs(one - three).max() <= 0.02 * np.abs(one).max()  # before freezing, biases are not rounded


def test_what_was_trained_in_between_is_what_is_frozen(zoo):
    proto = zoo.ZOO["relu"]()
    model = ir.from_proto(proto)
    layers = find_layers(model)
    placed = place_qdq(model, layers, ranges(model, layers), DIALECT)
    weight = placed.weights[0]
    trained = held(model.graph, weight.quantizer.source) * np.float32(0.5)
    hold(model.graph, weight.quantizer.source, trained)
    scale = held(model.graph, weight.quantizer.scale) * np.float32(0.75)
    hold(model.graph, weight.quantizer.scale, scale)
    freeze_qdq(model, placed)
    node = next(n for n in model.graph if n.name == weight.layer)
    dequantize = node.inputs[1].producer()
    codes = dequantize.inputs[0].const_value.numpy()
    assert dequantize.inputs[1].const_value.numpy().tolist() == scale.tolist()
    np.testing.assert_array_equal(codes, np.clip(np.rint(trained / scale[:, None, None, None]), -128, 127))
    assert not any("weight" in name and held(model.graph, name).dtype == np.float32 and held(model.graph, name).ndim > 1 for name in model.graph.initializers)


def test_those_that_only_move_values_share_a_scale(zoo):
    proto = zoo.model(
        [zoo.node("Conv", "x w", "c"), zoo.node("MaxPool", "c", "m", kernel_shape=[2, 2]), zoo.node("Conv", "m v", "y")],
        {"x": ["N", 2, 6, 6]},
        {"y": None},
        {"w": zoo.draw(4, 2, 1, 1), "v": zoo.draw(3, 4, 1, 1)},
    )
    model = ir.from_proto(proto)
    layers = find_layers(model)
    placed = place_qdq(model, layers, ranges(model, layers), DIALECT)
    assert placed.activations["m"].shares == placed.activations["c"].scale == placed.activations["c"].shares
    assert placed.activations["x"].shares == placed.activations["x"].scale


def test_three_bits_are_clipped_to_by_the_graph_itself(zoo):
    """ONNX's own arithmetic gives no more than eight values at every quantized tensor."""
    dialect = replace(DIALECT, activations=narrowed(DIALECT.activations, 3), operands=narrowed(DIALECT.operands, 3), weights=narrowed(DIALECT.weights, 3))
    model = written(zoo.ZOO["relu"](), "later", dialect)
    made = [node.outputs[0] for node in model.graph if node.op_type == "QuantizeLinear"]
    model.graph.outputs.extend(made)
    found = ReferenceEvaluator(ir.to_proto(model)).run([v.name for v in made], zoo.feed(zoo.ZOO["relu"](), 1, scale=10))
    assert len(made) > 1
    for codes in found:
        assert codes.dtype == np.uint8
        assert 1 < len(np.unique(codes)) <= 8
        assert codes.max() <= 7
    weights = [n.inputs[0].const_value.numpy() for n in model.graph if n.op_type == "DequantizeLinear" and n.inputs[0].const_value is not None]
    assert all(codes.min() >= -4 and codes.max() <= 3 for codes in weights if codes.dtype == np.int8)
