"""Zero points, moved from what a layer reads into its bias.

A layer that reads codes q of an asymmetric tensor computes W s (q - z) + b. Nothing is padded, so s z is taken from every
value alike: the same is W s q + (b - s z W 1), whose second part is known before the model runs. An engine that subtracts
zero points by itself does so at every run. Measured on OpenVINO 2026.4: the pointwise convolutions of a network for
pictures that read such tensors take a tenth less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.layers import FLOAT32
from quant.graph.model import add_initializer, attribute, constant, drop_unused_weights
from quant.graph.names import Names

_BIAS = 2
_MATRIX = 2
Doubles = npt.NDArray[np.float64]


class _Slot(NamedTuple):
    """Where a layer's bias stands: the constant at `position` of `node`, a number for each of `channels`."""

    node: ir.Node
    position: int
    channels: int


def move_zero_points(model: ir.Model) -> int:
    """Let layers read codes without their zero point wherever a constant bias can make up for it, in place; gives their number.

    Other readers of the same codes go on reading them with it.
    """
    graph, names, moved = model.graph, Names(model.graph), 0
    bare: dict[ir.Node, ir.Value] = {}
    for node in list(graph):
        source = _asymmetric(node)
        weights = _weights(node) if source is not None else None
        slot = _bias_slot(node, weights) if weights is not None else None
        if source is None or weights is None or slot is None:
            continue
        scale, zero = constant(source.inputs[1]), constant(source.inputs[2])
        assert scale is not None and zero is not None, "an asymmetric input has both"  # noqa: PT018 - for mypy
        _subtract(graph, slot, _sums(node, weights) * (float(scale) * float(zero)), names)
        if source not in bare:
            bare[source] = _without_zero_point(graph, source, names)
        node.replace_input_with(0, bare[source])
        moved += 1
    graph.remove([s for s in bare if not s.outputs[0].uses() and not s.outputs[0].is_graph_output()], safe=True)
    drop_unused_weights(graph)
    return moved


def _asymmetric(node: ir.Node) -> ir.Node | None:
    """The DequantizeLinear that a product reads on its left, if its one zero point is not 0 and nothing of the product is padded."""
    if node.op_type not in {"Conv", "Gemm", "MatMul"} or node.domain not in {"", "ai.onnx"}:
        return None
    maker = node.inputs[0].producer() if node.inputs[0] is not None else None
    if maker is None or maker.op_type != "DequantizeLinear" or len(maker.inputs) <= _BIAS:
        return None
    scale, zero = constant(maker.inputs[1]), constant(maker.inputs[2])
    if scale is None or scale.size != 1 or zero is None or zero.size != 1 or float(zero.reshape(())) == 0:
        return None
    padded = any(attribute(node, "pads", [0])) or attribute(node, "auto_pad", "NOTSET") not in {"NOTSET", "VALID"}
    changed = attribute(node, "transA", 0) or attribute(node, "alpha", 1.0) != 1 or attribute(node, "beta", 1.0) != 1
    return None if padded or changed else maker


def _weights(node: ir.Node) -> Doubles | None:
    """What the weight of `node` stands for; None unless it is codes behind DequantizeLinear, a scale to each channel or one."""
    maker = node.inputs[1].producer() if node.inputs[1] is not None else None
    if maker is None or maker.op_type != "DequantizeLinear" or attribute(maker, "block_size", 0):
        return None
    codes, scale = constant(maker.inputs[0]), constant(maker.inputs[1])
    zero: npt.NDArray[Any] | None = constant(maker.inputs[2]) if len(maker.inputs) > _BIAS else np.zeros(())
    if codes is None or scale is None or zero is None or codes.ndim < _MATRIX or (node.op_type == "MatMul" and codes.ndim != _MATRIX):
        return None
    axis = int(attribute(maker, "axis", 1)) % codes.ndim
    wide, shift = (a.astype(np.float64).reshape([-1 if i == axis else 1 for i in range(codes.ndim)]) for a in (scale, zero))
    return np.asarray((codes.astype(np.float64) - shift) * wide)


def _bias_slot(node: ir.Node, weights: Doubles) -> _Slot | None:
    """Where the bias of `node` is a constant, or can be given one."""
    channels = weights.shape[0] if node.op_type == "Conv" or attribute(node, "transB", 0) else weights.shape[1]
    if node.op_type != "MatMul":
        value = node.inputs[_BIAS] if len(node.inputs) > _BIAS else None
        return _Slot(node, _BIAS, channels) if value is None or _is_row(value, channels) else None
    readers = list(node.outputs[0].uses())
    if len(readers) != 1 or node.outputs[0].is_graph_output() or readers[0][0].op_type != "Add" or readers[0][0].graph is not node.graph:
        return None
    add, at = readers[0]
    return _Slot(add, 1 - at, channels) if _is_row(add.inputs[1 - at], channels) else None


def _is_row(value: ir.Value | None, channels: int) -> bool:
    row = constant(value)
    return row is not None and row.shape == (channels,)


def _sums(node: ir.Node, weights: Doubles) -> Doubles:
    """Sum of the weights of each output channel."""
    if node.op_type == "Conv":
        return np.asarray(weights.reshape(len(weights), -1).sum(axis=1))
    return np.asarray(weights.sum(axis=1 if attribute(node, "transB", 0) else 0))


def _subtract(graph: ir.Graph, slot: _Slot, shift: Doubles, names: Names) -> None:
    node, position, channels = slot
    if len(node.inputs) <= position:
        node.resize_inputs(position + 1)
    bias = constant(node.inputs[position])
    moved = (np.zeros(channels) if bias is None else bias.astype(np.float64)) - shift
    node.replace_input_with(position, add_initializer(graph, names.new(f"{node.name}_bias_moved"), moved.astype(np.float32)))


def _without_zero_point(graph: ir.Graph, source: ir.Node, names: Names) -> ir.Value:
    node = ir.node("DequantizeLinear", list(source.inputs[:2]), name=names.new(f"{source.name}_moved"))
    value = node.outputs[0]
    value.name, value.dtype, value.shape = names.new(f"{source.outputs[0].name}_moved"), FLOAT32, source.outputs[0].shape
    graph.insert_after(source, node)
    return value
