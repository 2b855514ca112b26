"""Weights behind a quantizer: placed in float first, so that they can be trained, then written as the codes that an engine reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.formats import Grid, Params, quantizer_attributes, slice_extremes
from quant.graph.layers import FLOAT32, Layer
from quant.graph.model import add_initializer, attribute, constant
from quant.graph.names import Names

_INT32_MAX = 2**31 - 1
_BIAS = 2


@dataclass(frozen=True)
class Quantizer:
    """A pair of QuantizeLinear and DequantizeLinear in a graph.

    Args:
        source: The value that it quantizes.
        made: The value that it gives.
        scale: Initializer with its scale.
        zero_point: Initializer with its zero point.
        grid: Its grid.
        axis: The axis that scales lie along; None for one scale.
        shares: Name of the scale that this one must always be equal to; its own where it is free.
    """

    source: str
    made: str
    scale: str
    zero_point: str
    grid: Grid
    axis: int | None
    shares: str


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight behind its quantizer.

    Args:
        layer: Name of the layer.
        quantizer: The pair; it reads an initializer, in float.
        bias: Initializer with the bias `[out]`, in float, where it is to be written in steps of (weight scale x input scale); else None.
        source: The tensor that the weight multiplies.
    """

    layer: str
    quantizer: Quantizer
    bias: str | None
    source: str


def make_pair(
    graph: ir.Graph, value: ir.Value, name: str, params: Params, *, grid: Grid, axis: int | None, names: Names
) -> tuple[Quantizer, list[ir.Node], ir.Value]:
    """Quantize -> Dequantize of `value`: what it is, its nodes (which stand nowhere yet), and what comes out."""
    scale = add_initializer(graph, names.new(f"{name}_scale"), params.scale)
    zero = add_initializer(graph, names.new(f"{name}_zero_point"), np.asarray(params.zero_point, grid.dtype))
    attributes = quantizer_attributes(axis)
    quantize = ir.node("QuantizeLinear", [value, scale, zero], attributes=attributes, name=names.new(f"{name}_QuantizeLinear"))
    dequantize = ir.node("DequantizeLinear", [quantize.outputs[0], scale, zero], attributes=attributes, name=names.new(f"{name}_DequantizeLinear"))
    codes, made = quantize.outputs[0], dequantize.outputs[0]
    codes.name, made.name = names.new(f"{name}_quantized"), names.new(f"{name}_dequantized")
    codes.dtype, made.dtype = ir.DataType(grid.encoding.data_type), FLOAT32
    codes.shape = made.shape = value.shape
    return Quantizer(str(value.name), str(made.name), str(scale.name), str(zero.name), grid, axis, str(scale.name)), [quantize, dequantize], made


def place_weight(graph: ir.Graph, layer: Layer, dialect: Dialect, *, source: Params, per_channel: bool, names: Names) -> QuantizedWeight:
    """Put Quantize -> Dequantize behind the weight of `layer`; its bias becomes a row of its own where the dialect wants integers there.

    Args:
        graph: The graph.
        layer: A layer with a weight.
        dialect: The form that the target wants.
        source: Scale of what the weight multiplies.
        per_channel: One scale for each output channel, else one for the whole.
        names: The graph's names.
    """
    node, position = layer.node, layer.weight
    assert position is not None, "only layers with a weight are given here"
    multiplied = node.inputs[layer.activations[0]]
    assert multiplied is not None, "what a weight multiplies is there"
    weights, bias = _weight_and_bias(layer, dialect)
    axis = layer.channel_axis if per_channel else None
    low, high = slice_extremes(weights, axis)
    params = dialect.weights.params(low, high)
    if bias is not None:
        params = _room_for_bias(params, source, bias, nothing=(low == 0) & (high == 0))
    name = f"{layer.name}_weight"
    value = add_initializer(graph, names.new(name), weights)
    pair, nodes, made = make_pair(graph, value, name, params, grid=dialect.weights, axis=axis, names=names)
    graph.insert_before(node, nodes)
    node.replace_input_with(position, made)
    row = None
    if bias is not None:
        row = add_initializer(graph, names.new(f"{layer.name}_bias"), bias.astype(np.float32))
        node.replace_input_with(_BIAS, row)
    return QuantizedWeight(layer.name, pair, None if row is None else str(row.name), str(multiplied.name))


def freeze_weight(graph: ir.Graph, weight: QuantizedWeight, source: Params, names: Names) -> None:
    """Write a placed weight, and its bias, as codes, with the scales that the graph holds now.

    Args:
        graph: The graph.
        weight: What was placed.
        source: Scale of what it multiplies.
        names: The graph's names.
    """
    pair = weight.quantizer
    values = held(graph, pair.source).astype(np.float32)
    params = Params(held(graph, pair.scale), held(graph, pair.zero_point))
    if weight.bias is not None:
        bias = held(graph, weight.bias).astype(np.float64)
        low, high = slice_extremes(values, pair.axis)
        params = _room_for_bias(params, source, bias, nothing=(low == 0) & (high == 0))
        hold(graph, pair.scale, params.scale)
        _freeze_bias(graph, weight, source, bias, names)
    dequantize = next(node for node, position in graph.initializers[pair.scale].uses() if node.op_type == "DequantizeLinear" and position == 1)
    quantize = dequantize.inputs[0].producer() if dequantize.inputs[0] is not None else None
    assert quantize is not None, "a placed weight stands behind QuantizeLinear"
    name = str(quantize.outputs[0].name)
    dequantize.replace_input_with(0, None)
    graph.remove(quantize, safe=True)
    dequantize.replace_input_with(0, add_initializer(graph, name, pair.grid.quantize(values, params, pair.axis)))
    for gone in (pair.source, weight.bias):
        if gone is not None and not graph.initializers[gone].uses():
            del graph.initializers[gone]


def _freeze_bias(graph: ir.Graph, weight: QuantizedWeight, source: Params, bias: npt.NDArray[np.float64], names: Names) -> None:
    """Write the bias as INT32 codes, in steps of (weight scale x input scale)."""
    row = graph.initializers[str(weight.bias)]
    [(layer, position)] = row.uses()
    scale = np.asarray(held(graph, weight.quantizer.scale).astype(np.float64) * float(source.scale), np.float32)
    whole = np.clip(np.rint(bias / scale.astype(np.float64)), -_INT32_MAX, _INT32_MAX).astype(np.int32)
    steps = Params(scale, np.zeros(scale.shape, np.int32))
    name = f"{weight.layer}_bias"
    layer.replace_input_with(position, _dequantized(graph, layer, name, codes=whole, params=steps, axis=0 if scale.ndim else None, names=names))


def held(graph: ir.Graph, name: str) -> npt.NDArray[Any]:
    """What the initializer `name` holds."""
    found = constant(graph.initializers[name])
    assert found is not None, "an initializer is constant"
    return found


def hold(graph: ir.Graph, name: str, array: npt.NDArray[np.generic]) -> None:
    """Let the initializer `name` hold `array`, which has its shape and type."""
    graph.initializers[name].const_value = ir.tensor(np.ascontiguousarray(array).reshape(np.shape(array)), name=name)


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
    attributes = quantizer_attributes(axis)
    node = ir.node("DequantizeLinear", inputs, attributes=attributes, name=names.new(f"{name}_DequantizeLinear"))
    node.outputs[0].name, node.outputs[0].dtype, node.outputs[0].shape = names.new(f"{name}_dequantized"), FLOAT32, ir.Shape(codes.shape)
    graph.insert_before(before, node)
    return node.outputs[0]
