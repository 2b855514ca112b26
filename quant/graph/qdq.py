"""Quantize/dequantize nodes: writing an INT8 plan into a graph, in a target's dialect."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.formats import Grid, Params, Range, slice_extremes
from quant.graph.layers import FLOAT32, Layer
from quant.graph.model import add_initializer, constant, drop_unused_weights

_INT32_MAX = 2**31 - 1


def insertion_points(model: ir.Model, layers: Collection[Layer], dialect: Dialect) -> dict[str, Grid]:
    """Tensors that get Q/DQ when `layers` are quantized in `dialect`, each with its grid.

    These are the tensors whose ranges calibration must find.
    """
    points: dict[str, Grid] = {}
    chosen = {id(layer.node) for layer in layers}
    for layer in layers:
        for position in layer.activations:
            value = layer.node.inputs[position]
            assert value is not None
            right = layer.weight is None and position == 1
            points.setdefault(str(value.name), dialect.operands if right else dialect.activations)
    kept = {v.name for v in model.graph.outputs}
    for node in model.graph:
        if node.op_type not in dialect.chained or not (id(node) in chosen or _all_quantized(node, points, chosen)):
            continue
        end = _chain_end(node, dialect)
        if end.name not in kept and end.dtype == FLOAT32:
            points.setdefault(str(end.name), dialect.activations)
    return points


def _all_quantized(node: ir.Node, points: Mapping[str, Grid], chosen: Collection[int]) -> bool:
    """Whether every float input of a node that is no layer is quantized behind what makes it."""
    if node.op_type in {"Conv", "ConvTranspose", "Gemm", "MatMul"}:
        return False
    floats = [v for v in node.inputs if v is not None and v.dtype == FLOAT32 and constant(v) is None]
    return bool(floats) and all(v.name in points and _from_chain(v, points) for v in floats) and id(node) not in chosen


def _from_chain(value: ir.Value, points: Mapping[str, Grid]) -> bool:
    return str(value.name) in points


def _chain_end(node: ir.Node, dialect: Dialect) -> ir.Value:
    """The tensor behind `node`, or behind the activation function that melts into it."""
    end = node.outputs[0]
    consumers = list(end.consumers())
    if len(consumers) == 1 and consumers[0].op_type in dialect.melting and not end.is_graph_output():
        return consumers[0].outputs[0]
    return end


def write_int8(model: ir.Model, layers: Collection[Layer], ranges: Mapping[str, Range], dialect: Dialect, *, per_channel: bool = True) -> None:
    """Insert Q/DQ for `layers` into `model`, in place.

    Args:
        model: The graph.
        layers: Its layers that are to compute in INT8.
        ranges: Range of every tensor that `insertion_points` names.
        dialect: The form that the target wants.
        per_channel: One scale for each output channel of a weight, else one for the whole.
    """
    if dialect.gemm:
        layers = [_merge_bias(model.graph, layer) for layer in layers]
    points = insertion_points(model, layers, dialect)
    chosen = {id(layer.node): layer for layer in layers}
    params = _tensor_params(model, points, ranges, dialect)
    for layer in layers:
        if layer.weight is not None:
            source = layer.node.inputs[layer.activations[0]]
            assert source is not None
            _write_weight(model.graph, layer, dialect, params[str(source.name)], per_channel=per_channel)
    for name, value in [(n, v) for n, v in _values(model.graph).items() if n in points]:
        maker = value.producer()
        chained = maker is not None and (_ends_chain(maker, dialect, chosen, points))
        _insert_pair(model.graph, value, params[name], points[name], chosen, everywhere=chained)
    drop_unused_weights(model.graph)


def _merge_bias(graph: ir.Graph, layer: Layer) -> Layer:
    """The layer as a Gemm with its bias, if it is a product of two matrices whose only reader adds a constant row to it."""
    product = layer.node.outputs[0]
    readers = list(product.consumers())
    source = layer.node.inputs[0]
    if layer.op != "MatMul" or layer.weight != 1 or product.is_graph_output() or len(readers) != 1 or readers[0].op_type != "Add":
        return layer
    add, shape = readers[0], layer.weight_shape
    bias = next((v for v in add.inputs if v is not None and v is not product), None)
    row = constant(bias)
    if shape is None or len(shape) != 2 or source is None or source.shape is None or len(source.shape) != 2 or row is None or row.shape != (shape[1],):
        return layer
    gemm = ir.node("Gemm", [source, layer.node.inputs[1], bias], name=layer.name)
    output = add.outputs[0]
    gemm.outputs[0].dtype, gemm.outputs[0].shape = output.dtype, output.shape
    graph.insert_before(add, gemm)
    ir.convenience.replace_all_uses_with(output, gemm.outputs[0], replace_graph_outputs=True)
    name = output.name
    graph.remove([add, layer.node], safe=True)
    gemm.outputs[0].name = name
    return Layer(layer.name, "Gemm", gemm, 1, 1, (0,))


def _ends_chain(maker: ir.Node, dialect: Dialect, chosen: Mapping[int, Layer], points: Mapping[str, Grid]) -> bool:
    """Whether `maker`'s output is quantized for every reader, so that `maker` itself may compute in integers."""
    if maker.op_type in dialect.melting:
        before = maker.inputs[0].producer() if maker.inputs[0] is not None else None
        if before is not None and before.op_type in dialect.chained and _chain_end(before, dialect) is maker.outputs[0]:
            maker = before
    if maker.op_type not in dialect.chained:
        return False
    return id(maker) in chosen or _all_quantized(maker, points, chosen)


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
            if source is not None and source.name in params and target.name in params:
                params[str(target.name)] = params[str(source.name)]
    return params


def _insert_pair(graph: ir.Graph, value: ir.Value, params: Params, grid: Grid, chosen: Mapping[int, Layer], *, everywhere: bool) -> None:
    """Put Quantize -> Dequantize behind `value`; quantized layers read behind it, and with `everywhere` all readers do."""
    name = str(value.name)
    scale = add_initializer(graph, f"{name}_scale", params.scale)
    zero = add_initializer(graph, f"{name}_zero_point", np.asarray(params.zero_point, grid.dtype))
    quantize = ir.node("QuantizeLinear", [value, scale, zero], name=f"{name}_QuantizeLinear")
    dequantize = ir.node("DequantizeLinear", [quantize.outputs[0], scale, zero], name=f"{name}_DequantizeLinear")
    quantize.outputs[0].name, dequantize.outputs[0].name = f"{name}_quantized", f"{name}_dequantized"
    quantize.outputs[0].dtype, dequantize.outputs[0].dtype = ir.DataType.INT8 if grid.low < 0 else ir.DataType.UINT8, FLOAT32
    quantize.outputs[0].shape = dequantize.outputs[0].shape = value.shape
    readers = [(node, i) for node, i in value.uses() if _reads_codes(node, i, chosen) or (everywhere and node.graph is graph)]
    anchor = value.producer()
    if anchor is None:
        graph.insert_before(graph[0], [quantize, dequantize])
    else:
        graph.insert_after(anchor, [quantize, dequantize])
    for node, i in readers:
        node.replace_input_with(i, dequantize.outputs[0])


def _reads_codes(node: ir.Node, position: int, chosen: Mapping[int, Layer]) -> bool:
    layer = chosen.get(id(node))
    return layer is not None and position in layer.activations


def _write_weight(graph: ir.Graph, layer: Layer, dialect: Dialect, source: Params, *, per_channel: bool) -> None:
    """Replace the weight by codes -> DequantizeLinear, and the bias too where the dialect wants integers."""
    node, position = layer.node, layer.weight
    assert position is not None
    value = node.inputs[position]
    weights = constant(value)
    assert value is not None and weights is not None
    axis = layer.channel_axis if per_channel else None
    params = dialect.weights.params(*slice_extremes(weights, axis))
    bias = constant(node.inputs[2]) if layer.op in dialect.integer_bias and len(node.inputs) > 2 else None
    if bias is not None:
        params = _room_for_bias(params, source, bias)
    codes = dialect.weights.quantize(weights.astype(np.float32), params, axis)
    name = f"{layer.name}_weight"
    node.replace_input_with(position, _dequantized(graph, node, name, codes, params, axis))
    if bias is not None:
        scale = (params.scale.astype(np.float64) * float(source.scale)).astype(np.float32)
        whole = np.clip(np.rint(bias.astype(np.float64) / scale.astype(np.float64)), -_INT32_MAX, _INT32_MAX).astype(np.int32)
        node.replace_input_with(2, _dequantized(graph, node, f"{layer.name}_bias", whole, Params(scale, np.zeros(scale.shape, np.int32)), 0 if scale.ndim else None))


def _room_for_bias(params: Params, source: Params, bias: npt.NDArray[Any]) -> Params:
    """Grow a weight's scale where its bias, in steps of (weight scale x input scale), would overflow INT32.

    A channel whose weights are almost nothing has an almost endless number of steps to its bias; a larger scale costs it
    nothing that can be seen. Half of INT32 is left to the sum of products.
    """
    least = np.abs(bias.astype(np.float64)) / (float(source.scale) * (_INT32_MAX // 2))
    if params.scale.ndim == 0:
        least = np.max(least, initial=0.0)
    return Params(np.maximum(params.scale, least.astype(np.float32)), params.zero_point)


def _dequantized(graph: ir.Graph, before: ir.Node, name: str, codes: npt.NDArray[Any], params: Params, axis: int | None) -> ir.Value:
    """`DequantizeLinear` of `codes`, standing before `before`; gives its output."""
    inputs = [
        add_initializer(graph, f"{name}_quantized", codes),
        add_initializer(graph, f"{name}_scale", params.scale),
        add_initializer(graph, f"{name}_zero_point", np.asarray(params.zero_point, codes.dtype)),
    ]
    attributes = {} if axis is None else {"axis": axis}
    node = ir.node("DequantizeLinear", inputs, attributes=attributes, name=f"{name}_DequantizeLinear")
    node.outputs[0].name, node.outputs[0].dtype, node.outputs[0].shape = f"{name}_dequantized", FLOAT32, ir.Shape(codes.shape)
    graph.insert_before(before, node)
    return node.outputs[0]
