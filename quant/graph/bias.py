"""Bias correction: rounding a weight moves the mean of what its layer gives, and the bias can take that back.

A layer with rounded weights W' gives y' = W' x + b instead of y = W x + b. Averaged over calibration data the difference is
(W' - W) E[x], one number for each output channel, which is known before the model runs and is subtracted from the bias. It
costs nothing when the model runs. It matters most behind activation functions that give nothing negative, where E[x] is
large, and in depthwise convolutions, whose few weights to a channel do not average their errors out (Nagel et al. 2019,
"Data-Free Quantization Through Weight Equalization and Bias Correction").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.layers import Layer
from quant.graph.model import add_initializer, attribute, constant, drop_unused_weights
from quant.graph.names import Names

Doubles = npt.NDArray[np.float64]
_BIAS = 2
_MATRIX = 2
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Before:
    """A layer as it was before its weight was rounded.

    Args:
        weights: The weight as the layer applies it.
        source: The tensor that it multiplies.
    """

    weights: Doubles
    source: str


def correctable(layers: Collection[Layer]) -> dict[str, Before]:
    """Name -> weight and input of every layer whose bias can take a correction.

    These are convolutions, and products of two matrices, which have the channels of their input on axis 1.
    """
    return {layer.name: Before(_weights(layer), str(value.name)) for layer in layers if (value := _source(layer)) is not None}


def _source(layer: Layer) -> ir.Value | None:
    value = layer.node.inputs[0]
    if layer.weight != 1 or value is None:
        return None
    match layer.op:
        case "Conv":
            return value
        case "Gemm":
            return None if attribute(layer.node, "transA", 0) else value
        case "MatMul":
            return value if value.shape is not None and len(value.shape) == _MATRIX else None
        case _:
            return None


def _weights(layer: Layer) -> Doubles:
    weights = constant(layer.node.inputs[1])
    assert weights is not None, "a weight is constant"
    factor = float(attribute(layer.node, "alpha", 1.0)) if layer.op == "Gemm" else 1.0
    return weights.astype(np.float64) * factor


def give_biases(graph: ir.Graph, layers: Collection[Layer]) -> None:
    """Give every convolution that has no bias one of zeros, so that there is something to correct."""
    names = Names(graph)
    for layer in layers:
        node = layer.node
        if layer.op != "Conv" or layer.weight != 1 or (len(node.inputs) > _BIAS and node.inputs[_BIAS] is not None):
            continue
        shape = layer.weight_shape
        assert shape is not None, "a layer with a weight has its shape"
        node.resize_inputs(_BIAS + 1)
        node.replace_input_with(_BIAS, add_initializer(graph, names.new(f"{layer.name}_bias"), np.zeros(shape[0], np.float32)))


def correct_biases(model: ir.Model, before: Mapping[str, Before], means: Mapping[str, Doubles]) -> int:
    """Subtract from each bias what rounding added to the mean of its layer's outputs; gives the number of biases changed.

    Args:
        model: The graph, its weights written as codes behind `DequantizeLinear`.
        before: Name of a layer -> what it was.
        means: Tensor -> its mean along axis 1, float64 `[channels]`.
    """
    changed = 0
    names = Names(model.graph)
    for node in model.graph:
        was = before.get(str(node.name))
        if was is None or was.source not in means or len(node.inputs) <= _BIAS or node.op_type not in {"Conv", "Gemm"}:
            continue
        shift = _shift(node, _dequantized(node.inputs[1]) - was.weights, means[was.source])
        changed += _subtract(model.graph, node, shift, names)
    drop_unused_weights(model.graph)
    return changed


def _dequantized(value: ir.Value | None) -> Doubles:
    """What the codes behind `value` stand for."""
    maker = value.producer() if value is not None else None
    assert maker is not None and maker.op_type == "DequantizeLinear", "a quantized weight stands behind DequantizeLinear"  # noqa: PT018 - for mypy
    codes, scale = constant(maker.inputs[0]), constant(maker.inputs[1])
    assert codes is not None and scale is not None, "codes and scale of a weight are constant"  # noqa: PT018 - for mypy
    return codes.astype(np.float64) * _along(scale, codes.ndim, int(attribute(maker, "axis", 1)))


def _along(scale: npt.NDArray[np.generic], rank: int, axis: int) -> Doubles:
    wide = scale.astype(np.float64)
    return wide.reshape([-1 if i == axis % rank else 1 for i in range(rank)]) if wide.size > 1 else wide.reshape(())


def _shift(node: ir.Node, error: Doubles, mean: Doubles) -> Doubles:
    """Mean of what `error`, a difference of weights, adds to each output channel.

    Padding is taken as if it held the mean: exact where there is none.
    """
    if node.op_type == "Gemm":
        return np.asarray((error if attribute(node, "transB", 0) else error.T) @ mean, np.float64)
    groups = int(attribute(node, "group", 1))
    summed = error.reshape(*error.shape[:2], -1).sum(axis=2).reshape(groups, -1, error.shape[1])
    return np.asarray(np.einsum("goi,gi->go", summed, mean.reshape(groups, -1)).reshape(-1), np.float64)


def _subtract(graph: ir.Graph, node: ir.Node, shift: Doubles, names: Names) -> bool:
    """Subtract `shift` from the bias of `node`, in codes where it is written in codes."""
    value = node.inputs[_BIAS]
    maker = value.producer() if value is not None else None
    if maker is not None and maker.op_type == "DequantizeLinear":
        codes, scale = constant(maker.inputs[0]), constant(maker.inputs[1])
        assert codes is not None and scale is not None, "codes and scale of a bias are constant"  # noqa: PT018 - for mypy
        moved = np.rint(codes.astype(np.float64) - shift / scale.astype(np.float64))
        whole = np.clip(moved, -_INT32_MAX, _INT32_MAX).astype(np.int32)
        maker.replace_input_with(0, add_initializer(graph, names.new(f"{node.name}_bias_corrected"), whole))
        return True
    bias = constant(value)
    if bias is None or not (bias.size == 1 or (bias.size == shift.size and bias.shape[-1] == shift.size)):  # a column is no row of channels
        return False
    factor = float(attribute(node, "beta", 1.0)) if node.op_type == "Gemm" else 1.0
    if not factor:
        return False  # what is added counts for nothing
    corrected = (bias.astype(np.float64).reshape(-1) - shift / factor).astype(bias.dtype)
    node.replace_input_with(_BIAS, add_initializer(graph, names.new(f"{node.name}_bias_corrected"), corrected))
    return True
