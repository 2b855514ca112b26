"""Dynamic INT8: quantize -> integer product -> scale, in standard ONNX operators that ONNX Runtime fuses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.formats import Grid, slice_extremes
from quant.graph.layers import FLOAT32, Layer
from quant.graph.model import add_initializer, attribute, constant, drop_unused_weights
from quant.graph.names import Names

_BIAS, _MATRIX = 2, 2


def dynamic_obstacle(layer: Layer) -> str | None:
    """Why `layer` cannot be written as a dynamic integer product; None when it can."""
    if layer.weight is None:
        return "a product of two activations has no weight to quantize in advance"
    if layer.weight == 0:
        return "the weight is the left operand"
    shape = layer.weight_shape
    if shape is not None and len(shape) != _MATRIX:
        return f"the weight has {len(shape)} axes, an integer product wants 2"
    if layer.op == "Gemm" and attribute(layer.node, "transA", 0):
        return "its input is transposed (transA)"
    if layer.op == "Gemm" and len(layer.node.inputs) > _BIAS and layer.node.inputs[_BIAS] is not None:
        computed = constant(layer.node.inputs[_BIAS]) is None
        return "its bias is computed, and scaled (beta)" if computed and attribute(layer.node, "beta", 1.0) != 1.0 else None
    return None


def write_dynamic(model: ir.Model, layers: Collection[Layer], dialect: Dialect, *, per_channel: bool = True) -> None:
    """Rewrite `layers` of `model` in place; inputs that several layers share are quantized once."""
    quantized: dict[str, tuple[ir.Value, ir.Value, ir.Value]] = {}
    names = Names(model.graph)
    for layer in layers:
        source = layer.node.inputs[layer.activations[0]]
        assert source is not None
        if str(source.name) not in quantized:
            quantized[str(source.name)] = _quantize(model.graph, layer.node, source, names)
        _rewrite(model.graph, layer, quantized[str(source.name)], grid=dialect.weights, per_channel=per_channel, names=names)
    drop_unused_weights(model.graph)


def _quantize(graph: ir.Graph, before: ir.Node, source: ir.Value, names: Names) -> tuple[ir.Value, ir.Value, ir.Value]:
    node = ir.node("DynamicQuantizeLinear", [source], num_outputs=3, name=names.new(f"{source.name}_DynamicQuantizeLinear"))
    for value, (suffix, dtype) in zip(node.outputs, (("quantized", ir.DataType.UINT8), ("scale", FLOAT32), ("zero_point", ir.DataType.UINT8)), strict=True):
        value.name, value.dtype = names.new(f"{source.name}_dynamic_{suffix}"), dtype
    graph.insert_before(before, node)
    return node.outputs[0], node.outputs[1], node.outputs[2]


def _rewrite(graph: ir.Graph, layer: Layer, source: tuple[ir.Value, ir.Value, ir.Value], *, grid: Grid, per_channel: bool, names: Names) -> None:
    """Replace one layer: (codes of x) x (codes of w) -> INT32 -> float x (scale of x x scale of w) [+ bias]."""
    node, name = layer.node, layer.name
    weights, bias = _matrix_and_bias(layer)
    axis = 1 if per_channel else None
    params = grid.params(*slice_extremes(weights, axis))
    codes = grid.quantize(weights, params, axis)
    codes_value = add_initializer(graph, names.new(f"{name}_weight_quantized"), codes)
    scale = add_initializer(graph, names.new(f"{name}_weight_scale"), params.scale)
    zero = add_initializer(graph, names.new(f"{name}_weight_zero_point"), np.asarray(params.zero_point, codes.dtype))
    output = node.outputs[0]
    product = _node("MatMulInteger", [source[0], codes_value, source[2], zero], names.new(f"{name}_MatMulInteger"), ir.DataType.INT32)
    floats = _node("Cast", [product.outputs[0]], names.new(f"{name}_Cast"), FLOAT32, to=int(FLOAT32))
    scales = _node("Mul", [source[1], scale], names.new(f"{name}_scales"), FLOAT32)
    scaled = _node("Mul", [floats.outputs[0], scales.outputs[0]], names.new(f"{name}_scaled"), FLOAT32)
    nodes = [product, floats, scales, scaled]
    if bias is not None:
        added = bias if isinstance(bias, ir.Value) else add_initializer(graph, names.new(f"{name}_bias"), bias)
        nodes.append(_node("Add", [scaled.outputs[0], added], names.new(f"{name}_biased"), FLOAT32))
    graph.insert_before(node, nodes)
    last = nodes[-1].outputs[0]
    last.shape = output.shape
    ir.convenience.replace_all_uses_with(output, last, replace_graph_outputs=True)
    given, output.name = str(output.name), names.new(f"{output.name}_float")
    last.name = given
    graph.remove(node, safe=True)


def _node(op: str, inputs: list[ir.Value], name: str, dtype: ir.DataType, **attributes: Any) -> ir.Node:
    made = ir.node(op, inputs, attributes=attributes, name=name)
    made.outputs[0].name, made.outputs[0].dtype = name, dtype
    return made


def _matrix_and_bias(layer: Layer) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | ir.Value | None]:
    """The weight as `[in, out]` and the bias, with Gemm's transposition and factors worked in."""
    node = layer.node
    weights = constant(node.inputs[1])
    assert weights is not None
    if layer.op != "Gemm":
        return weights.astype(np.float32), None
    matrix = (weights.T if attribute(node, "transB", 0) else weights) * np.float32(attribute(node, "alpha", 1.0))
    third = node.inputs[_BIAS] if len(node.inputs) > _BIAS else None
    if third is None:
        return np.ascontiguousarray(matrix, np.float32), None
    bias, beta = constant(third), np.float32(attribute(node, "beta", 1.0))
    if bias is None:
        assert beta == 1.0, "dynamic_obstacle leaves out a Gemm with a computed, scaled bias"
        return np.ascontiguousarray(matrix, np.float32), third
    return np.ascontiguousarray(matrix, np.float32), (bias * beta).astype(np.float32)
