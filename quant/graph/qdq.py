"""Quantize/dequantize nodes: writing a plan into a graph, in a target's dialect and on its grids."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.formats import Grid, Params, Range, slice_extremes
from quant.graph.layers import FLOAT32, Layer
from quant.graph.model import add_initializer, attribute, constant, drop_unused_weights
from quant.graph.names import Names
from quant.graph.points import spread

_INT32_MAX = 2**31 - 1
_BIAS = 2
_MATRIX = 2


def write_qdq(model: ir.Model, layers: Collection[Layer], ranges: Mapping[str, Range], dialect: Dialect, *, per_channel: bool = True) -> None:
    """Insert Q/DQ for `layers` into `model`, in place.

    Args:
        model: The graph.
        layers: Its layers that are to be quantized.
        ranges: Range of every tensor that `insertion_points` names.
        dialect: The form that the target wants.
        per_channel: One scale for each output channel of a weight, else one for the whole.
    """
    if dialect.gemm:
        layers = [_as_gemm(model.graph, layer) for layer in layers]
    names = Names(model.graph)
    points, everywhere = spread(model, layers, dialect)
    chosen = {id(layer.node): layer for layer in layers}
    params = _tensor_params(model, points, ranges, dialect)
    for layer in layers:
        if layer.weight is not None:
            source = layer.node.inputs[layer.activations[0]]
            assert source is not None
            _write_weight(model.graph, layer, dialect, source=params[str(source.name)], per_channel=per_channel, names=names)
    for name, value in [(n, v) for n, v in _values(model.graph).items() if n in points]:
        # Told before the pair is inserted, which changes what nodes behind it read.
        readers = [
            (n, i) for n, i in value.uses() if name in everywhere or _reads_codes(n, i, chosen) or (dialect.residual and _joins_convolution(n, value, chosen))
        ]
        dequantized = _insert_pair(model.graph, value, params[name], grid=points[name], names=names)
        for node, position in readers:
            node.replace_input_with(position, dequantized)
        if name in everywhere and value.is_graph_output():
            _give_out(model.graph, value, dequantized, names)
    drop_unused_weights(model.graph)


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


def _insert_pair(graph: ir.Graph, value: ir.Value, params: Params, *, grid: Grid, names: Names) -> ir.Value:
    """Put Quantize -> Dequantize behind `value`; gives what comes out."""
    name = str(value.name)
    scale = add_initializer(graph, names.new(f"{name}_scale"), params.scale)
    zero = add_initializer(graph, names.new(f"{name}_zero_point"), np.asarray(params.zero_point, grid.dtype))
    quantize = ir.node("QuantizeLinear", [value, scale, zero], name=names.new(f"{name}_QuantizeLinear"))
    dequantize = ir.node("DequantizeLinear", [quantize.outputs[0], scale, zero], name=names.new(f"{name}_DequantizeLinear"))
    quantize.outputs[0].name, dequantize.outputs[0].name = names.new(f"{name}_quantized"), names.new(f"{name}_dequantized")
    quantize.outputs[0].dtype, dequantize.outputs[0].dtype = ir.DataType(grid.encoding.data_type), FLOAT32
    quantize.outputs[0].shape = dequantize.outputs[0].shape = value.shape
    anchor = value.producer()
    if anchor is None:
        graph.insert_before(graph[0], [quantize, dequantize])
    else:
        graph.insert_after(anchor, [quantize, dequantize])
    return dequantize.outputs[0]


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


def _write_weight(graph: ir.Graph, layer: Layer, dialect: Dialect, *, source: Params, per_channel: bool, names: Names) -> None:
    """Replace the weight by codes -> DequantizeLinear, and the bias too where the dialect wants integers."""
    node, position = layer.node, layer.weight
    assert position is not None
    weights, bias = _weight_and_bias(layer, dialect)
    axis = layer.channel_axis if per_channel else None
    low, high = slice_extremes(weights, axis)
    params = dialect.weights.params(low, high)
    if bias is not None:
        params = _room_for_bias(params, source, bias, nothing=(low == 0) & (high == 0))
    codes = dialect.weights.quantize(weights, params, axis)
    node.replace_input_with(position, _dequantized(graph, node, f"{layer.name}_weight", codes=codes, params=params, axis=axis, names=names))
    if bias is not None:
        scale = np.asarray(params.scale.astype(np.float64) * float(source.scale), np.float32)
        whole = np.clip(np.rint(bias / scale.astype(np.float64)), -_INT32_MAX, _INT32_MAX).astype(np.int32)
        steps = Params(scale, np.zeros(scale.shape, np.int32))
        node.replace_input_with(2, _dequantized(graph, node, f"{layer.name}_bias", codes=whole, params=steps, axis=0 if scale.ndim else None, names=names))


def _weight_and_bias(layer: Layer, dialect: Dialect) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64] | None]:
    """The weight, and the bias `[out]` where it is to be written in integers; the factors of a Gemm worked into them.

    An engine that fuses Gemm reckons with factors of its own, so none are left.
    """
    node = layer.node
    assert layer.weight is not None
    weights = constant(node.inputs[layer.weight])
    assert weights is not None
    weights = weights.astype(np.float32)
    bias = _bias_row(layer, weights.shape) if layer.op in dialect.integer_bias else None
    if layer.op == "Gemm":
        weights = weights * np.float32(attribute(node, "alpha", 1.0))
        node.attributes["alpha"] = ir.AttrFloat32("alpha", 1.0)
        if bias is not None:
            bias = bias * float(attribute(node, "beta", 1.0))
            node.attributes["beta"] = ir.AttrFloat32("beta", 1.0)
    return weights, bias


def _bias_row(layer: Layer, shape: tuple[int, ...]) -> npt.NDArray[np.float64] | None:
    """The constant bias of a layer as float64 `[out]`; None when it has none, or not one for each output channel."""
    bias = constant(layer.node.inputs[2]) if len(layer.node.inputs) > _BIAS else None
    channels = shape[layer.channel_axis] if layer.channel_axis is not None else 0
    if bias is None or not (bias.size == 1 or (bias.size == channels and bias.shape[-1] == channels)):
        return None
    return np.broadcast_to(bias.astype(np.float64).reshape(-1), (channels,))


def bias_obstacle(layer: Layer, dialect: Dialect) -> str | None:
    """Why the bias of `layer` cannot be written in the integers that `dialect` wants; None when it can, or there is none."""
    value = layer.node.inputs[_BIAS] if len(layer.node.inputs) > _BIAS else None
    if layer.op not in dialect.integer_bias or layer.weight_shape is None or value is None or _bias_row(layer, layer.weight_shape) is not None:
        return None
    return "its bias is computed" if constant(value) is None else "its bias is not one number for each output channel"


def _room_for_bias(params: Params, source: Params, bias: npt.NDArray[np.float64], *, nothing: npt.NDArray[np.bool_]) -> Params:
    """Grow a weight's scale where its bias, in steps of (weight scale x input scale), would overflow INT32.

    A channel whose weights are almost nothing has an almost endless number of steps to its bias; a larger scale costs it
    nothing that can be seen. Half of INT32 is left to the sum of products. Where all weights are 0 (`nothing`), any scale
    will do, so the one with the finest steps for the bias is taken.
    """
    step = float(source.scale)
    tiny = float(np.finfo(np.float32).tiny)
    least = np.maximum(np.abs(bias) / (step * (_INT32_MAX // 2)), max(tiny, tiny / step))  # nor may the product vanish
    nothing = nothing & (bias != 0)
    if params.scale.ndim == 0:
        least, nothing = np.asarray(np.max(least)), np.asarray(nothing.any())
    given = np.where(nothing, np.float32(0), params.scale)
    return Params(np.asarray(np.maximum(given, least.astype(np.float32))), params.zero_point)


def _dequantized(graph: ir.Graph, before: ir.Node, name: str, *, codes: npt.NDArray[Any], params: Params, axis: int | None, names: Names) -> ir.Value:
    """`DequantizeLinear` of `codes`, standing before `before`; gives its output."""
    inputs = [
        add_initializer(graph, names.new(f"{name}_quantized"), codes),
        add_initializer(graph, names.new(f"{name}_scale"), params.scale),
        add_initializer(graph, names.new(f"{name}_zero_point"), np.asarray(params.zero_point, codes.dtype)),
    ]
    attributes = {} if axis is None else {"axis": axis}
    node = ir.node("DequantizeLinear", inputs, attributes=attributes, name=names.new(f"{name}_DequantizeLinear"))
    node.outputs[0].name, node.outputs[0].dtype, node.outputs[0].shape = names.new(f"{name}_dequantized"), FLOAT32, ir.Shape(codes.shape)
    graph.insert_before(before, node)
    return node.outputs[0]
