"""Quantize/dequantize nodes: writing a plan into a graph, in a target's dialect and on its grids."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.formats import Grid, Params, Range
from quant.core.formats.narrowed import Narrowed
from quant.graph.layers import FLOAT32, Layer
from quant.graph.model import add_initializer, constant, drop_unused_weights
from quant.graph.names import Names
from quant.graph.points import spread
from quant.graph.weights import QuantizedWeight, Quantizer, freeze_weight, held, make_pair, place_weight

_MATRIX = 2


@dataclass(frozen=True)
class Placed:
    """Quantizers that stand in a graph whose weights are still in float.

    Args:
        activations: Tensor, as the graph had it -> its quantizer.
        weights: The weights of all layers that have one.
    """

    activations: Mapping[str, Quantizer]
    weights: tuple[QuantizedWeight, ...]


def write_qdq(model: ir.Model, layers: Collection[Layer], ranges: Mapping[str, Range], dialect: Dialect, *, per_channel: bool = True) -> None:
    """Insert Q/DQ for `layers` into `model`, in place, and write their weights as codes.

    Args:
        model: The graph.
        layers: Its layers that are to be quantized.
        ranges: Range of every tensor that `insertion_points` names.
        dialect: The form that the target wants.
        per_channel: One scale for each output channel of a weight, else one for the whole.
    """
    _place(model, layers, ranges, dialect, per_channel=per_channel, freeze=True)


def place_qdq(model: ir.Model, layers: Collection[Layer], ranges: Mapping[str, Range], dialect: Dialect, *, per_channel: bool = True) -> Placed:
    """As `write_qdq`, but weights stay in float behind a quantizer of their own, and biases in float: to be trained, and then frozen."""
    return _place(model, layers, ranges, dialect, per_channel=per_channel, freeze=False)


def freeze_qdq(model: ir.Model, placed: Placed) -> None:
    """Write the weights that `place_qdq` left in float as codes, with the weights and scales that `model` holds now."""
    names = Names(model.graph)
    for weight in placed.weights:
        source = placed.activations[weight.source]
        freeze_weight(model.graph, weight, Params(held(model.graph, source.scale), held(model.graph, source.zero_point)), names)
    for quantizer in placed.activations.values():
        if isinstance(quantizer.grid, Narrowed):
            _clip(model.graph, quantizer, names)


def _place(model: ir.Model, layers: Collection[Layer], ranges: Mapping[str, Range], dialect: Dialect, *, per_channel: bool, freeze: bool) -> Placed:
    if dialect.gemm:
        layers = [_as_gemm(model.graph, layer) for layer in layers]
    names = Names(model.graph)
    points, everywhere = spread(model, layers, dialect)
    chosen = {id(layer.node): layer for layer in layers}
    params = _tensor_params(model, points, ranges, dialect)
    weights: list[QuantizedWeight] = []
    for layer in layers:
        if layer.weight is not None:
            source = layer.node.inputs[layer.activations[0]]
            assert source is not None
            known = params[str(source.name)]
            weight = place_weight(model.graph, layer, dialect, source=known, per_channel=per_channel, names=names)
            if freeze:  # one by one: all of them in float would be the model once more
                freeze_weight(model.graph, weight, known, names)
            weights.append(weight)
    activations: dict[str, Quantizer] = {}
    first: dict[int, str] = {}
    for name, value in [(n, v) for n, v in _values(model.graph).items() if n in points]:
        # Told before the pair is inserted, which changes what nodes behind it read.
        readers = [
            (n, i) for n, i in value.uses() if name in everywhere or _reads_codes(n, i, chosen) or (dialect.residual and _joins_convolution(n, value, chosen))
        ]
        quantizer, dequantized = _insert_pair(model.graph, value, params[name], grid=points[name], names=names)
        for node, position in readers:
            node.replace_input_with(position, dequantized)
        if name in everywhere and value.is_graph_output():
            _give_out(model.graph, value, dequantized, names)
        shares = first.setdefault(id(params[name]), quantizer.scale)
        activations[name] = replace(quantizer, source=str(value.name), made=str(dequantized.name), shares=shares)
    drop_unused_weights(model.graph)
    return Placed(activations, tuple(weights))


def _clip(graph: ir.Graph, quantizer: Quantizer, names: Names) -> None:
    """Put a Clip to the ends of its grid in front of a quantizer whose type holds more codes."""
    scale, zero = float(held(graph, quantizer.scale)), float(held(graph, quantizer.zero_point))
    quantize = next(node for node, position in graph.initializers[quantizer.scale].uses() if node.op_type == "QuantizeLinear" and position == 1)
    source = quantize.inputs[0]
    assert source is not None, "a quantizer reads something"
    ends = [add_initializer(graph, names.new(f"{source.name}_{end}"), np.asarray((code - zero) * scale, np.float32)) for end, code in _ends(quantizer.grid)]
    clip = ir.node("Clip", [source, *ends], name=names.new(f"{source.name}_Clip"))
    clip.outputs[0].name, clip.outputs[0].dtype, clip.outputs[0].shape = names.new(f"{source.name}_clipped"), FLOAT32, source.shape
    graph.insert_before(quantize, clip)
    quantize.replace_input_with(0, clip.outputs[0])


def _ends(grid: Grid) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("least", grid.low), ("most", grid.high)


def _as_gemm(graph: ir.Graph, layer: Layer) -> Layer:
    """The layer as a Gemm, if it is a product of two matrices whose only reader adds something to it.

    A constant row is taken in as its bias; anything else is added to what the Gemm gives, as before.
    """
    product = layer.node.outputs[0]
    readers = list(product.uses())
    if layer.op != "MatMul" or layer.weight == 0 or product.is_graph_output() or len(readers) != 1 or not all(_is_matrix(v) for v in layer.node.inputs):
        return layer
    add = readers[0][0]
    if add.op_type != "Add" or add.graph is not graph:
        return layer
    other = next((v for v in add.inputs if v is not product), None)
    row = constant(other)
    takes_in = layer.weight_shape is not None and row is not None and row.shape == layer.weight_shape[1:]
    gemm = ir.node("Gemm", [*layer.node.inputs, other] if takes_in else list(layer.node.inputs), name=layer.name)
    replaced = add if takes_in else layer.node
    graph.insert_before(replaced, gemm)
    output = replaced.outputs[0]
    gemm.outputs[0].type, gemm.outputs[0].shape = output.type, output.shape
    ir.convenience.replace_all_uses_with(output, gemm.outputs[0], replace_graph_outputs=True)
    name = output.name
    graph.remove([add, layer.node] if takes_in else [layer.node], safe=True)
    gemm.outputs[0].name = name
    return Layer(layer.name, "Gemm", gemm, layer.weight, layer.channel_axis, layer.activations)


def _is_matrix(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and len(value.shape) == _MATRIX


def _values(graph: ir.Graph) -> dict[str, ir.Value]:
    values = {str(v.name): v for v in graph.inputs}
    for node in graph:
        values.update({str(v.name): v for v in node.outputs})
    return values


def _tensor_params(model: ir.Model, points: Mapping[str, Grid], ranges: Mapping[str, Range], dialect: Dialect) -> dict[str, Params]:
    """Scale and zero point of every insertion point; operators that only move values keep those of their input."""
    params: dict[str, Params] = {}
    for name in _values(model.graph):
        if name in points:
            params[name] = points[name].params(*ranges[name])
    for node in model.graph:
        if node.op_type in dialect.transparent:
            source, target = node.inputs[0], node.outputs[0]
            if source is not None and source.name in params and points.get(str(target.name)) == points[str(source.name)]:
                params[str(target.name)] = params[str(source.name)]
    return params


def _insert_pair(graph: ir.Graph, value: ir.Value, params: Params, *, grid: Grid, names: Names) -> tuple[Quantizer, ir.Value]:
    """Put Quantize -> Dequantize behind `value`; gives what it is and what comes out."""
    quantizer, nodes, made = make_pair(graph, value, str(value.name), params, grid=grid, axis=None, names=names)
    anchor = value.producer()
    if anchor is None:
        graph.insert_before(graph[0], nodes)
    else:
        graph.insert_after(anchor, nodes)
    return quantizer, made


def _give_out(graph: ir.Graph, value: ir.Value, instead: ir.Value, names: Names) -> None:
    """Give out `instead` as the graph output that `value` was, under its name."""
    for position, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[position] = instead
    given = value.name
    value.name = names.new(f"{given}_float")
    instead.name = given


def _reads_codes(node: ir.Node, position: int, chosen: Mapping[int, Layer]) -> bool:
    layer = chosen.get(id(node))
    return layer is not None and position in layer.activations


def _joins_convolution(node: ir.Node, value: ir.Value, chosen: Mapping[int, Layer]) -> bool:
    """Whether `node` adds `value` to what a quantized convolution makes for nobody else: then both run as one kernel."""
    others = [v for v in node.inputs if v is not None and v is not value]
    maker = others[0].producer() if node.op_type == "Add" and len(others) == 1 else None
    return maker is not None and id(maker) in chosen and maker.op_type == "Conv" and len(others[0].uses()) == 1
