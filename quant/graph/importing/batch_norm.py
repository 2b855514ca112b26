"""Folding batch norms into the layer before them.

A batch norm in inference is y = (x - mean) · gamma / sqrt(var + epsilon) + beta, one affine map for each channel: with
s = gamma / sqrt(var + epsilon) the layer's weight becomes W · s and its bias (b - mean) · s + beta. All of it is computed in
float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.importing.surgery import DEFAULT_DOMAINS, bypass, has_one_use, is_op, replace_node, weight_of
from quant.graph.model import add_initializer, attribute

Wide = npt.NDArray[np.float64]
_FOLDED = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
_EPSILON = 1e-5  # ONNX's default


@dataclass(frozen=True)
class _Affine:
    """y = x · scale + shift, each `[channels]`."""

    scale: Wide
    shift: Wide


def fold_batch_norms(model: ir.Model) -> int:
    """Fold each batch norm into the Conv, ConvTranspose, Gemm or MatMul that alone feeds it; gives the number folded."""
    return sum(_fold(model.graph, node) for node in list(model.graph) if is_op(node, "BatchNormalization"))


def _fold(graph: ir.Graph, norm: ir.Node) -> bool:
    source = norm.inputs[0]
    affine = _affine(norm)
    if source is None or affine is None or not has_one_use(source):
        return False
    layer = source.producer()
    if layer is None or layer.graph is not graph:
        return False
    fold = _LAYERS.get(layer.op_type) if layer.domain in DEFAULT_DOMAINS else None
    return fold is not None and fold(graph, layer, norm, affine)


def _affine(norm: ir.Node) -> _Affine | None:
    """The map of a batch norm, or None when it is not fixed (or its result is not finite)."""
    if (
        attribute(norm, "training_mode", 0)
        or attribute(norm, "spatial", 1) == 0
        or len(norm.inputs) < 5  # noqa: PLR2004 - X, scale, B, mean, var
        or any(o.uses() or o.is_graph_output() for o in norm.outputs[1:])
    ):
        return None
    tensors = [weight_of(v) for v in norm.inputs[1:5]]
    if any(t is None for t in tensors):
        return None
    gamma, beta, mean, variance = (t.numpy().astype(np.float64) for t in tensors if t is not None)
    root = variance + float(attribute(norm, "epsilon", _EPSILON))
    if np.any(root <= 0):
        return None
    scale = gamma / np.sqrt(root)
    shift = beta - mean * scale
    return _Affine(scale, shift) if np.all(np.isfinite(scale)) and np.all(np.isfinite(shift)) else None


def _weight(layer: ir.Node, position: int) -> tuple[ir.Value, Wide, np.dtype[Any]] | None:
    value = layer.inputs[position] if position < len(layer.inputs) else None
    tensor = weight_of(value)
    if value is None or tensor is None or tensor.dtype not in _FOLDED:
        return None
    array = tensor.numpy()
    return value, array.astype(np.float64), array.dtype


def _set(graph: ir.Graph, layer: ir.Node, position: int, array: Wide, *, dtype: np.dtype[Any], name: str) -> None:
    """Give `layer` a new constant input: in place when it alone has the old one, else as a weight of its own called `name`."""
    old = layer.inputs[position] if position < len(layer.inputs) else None
    narrow = np.ascontiguousarray(array.astype(dtype))
    if old is not None and len(old.uses()) == 1 and not old.is_graph_output() and old.const_value is not None:
        old.const_value = ir.tensor(narrow, name=old.name)
        old.shape = ir.Shape(narrow.shape)
        return
    if position >= len(layer.inputs):
        layer.resize_inputs(position + 1)
    layer.replace_input_with(position, add_initializer(graph, name, narrow))


def _fold_convolution(graph: ir.Graph, layer: ir.Node, norm: ir.Node, affine: _Affine) -> bool:
    found = _weight(layer, 1)
    has_bias = len(layer.inputs) > 2 and layer.inputs[2] is not None  # noqa: PLR2004 - X, W, B
    bias = _weight(layer, 2)
    if found is None or (has_bias and bias is None):
        return False
    _, weight, dtype = found
    if layer.op_type == "Conv":
        weight = weight * affine.scale.reshape(-1, *[1] * (weight.ndim - 1))
    else:  # [in, out / groups, ...]: a group's rows meet the channels of that group alone
        groups = int(attribute(layer, "group", 1))
        split = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        weight = (split * affine.scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)
    old = 0.0 if bias is None else bias[1]
    if not bypass(norm.outputs[0], layer.outputs[0]):
        return False
    _set(graph, layer, 1, weight, dtype=dtype, name=f"{layer.name}.weight")
    _set(graph, layer, 2, old * affine.scale + affine.shift, dtype=dtype, name=f"{layer.name}.bias")
    graph.remove(norm, safe=True)
    return True


def _fold_gemm(graph: ir.Graph, layer: ir.Node, norm: ir.Node, affine: _Affine) -> bool:
    found, bias = _weight(layer, 1), _weight(layer, 2)
    has_bias = len(layer.inputs) > 2 and layer.inputs[2] is not None  # noqa: PLR2004 - A, B, C
    if found is None or (has_bias and bias is None):
        return False
    _, weight, dtype = found
    weight = weight * (affine.scale[:, None] if attribute(layer, "transB", 0) else affine.scale)
    old = 0.0 if bias is None else bias[1] * float(attribute(layer, "beta", 1.0))
    if not bypass(norm.outputs[0], layer.outputs[0]):
        return False
    _set(graph, layer, 1, weight, dtype=dtype, name=f"{layer.name}.weight")
    _set(graph, layer, 2, old * affine.scale + affine.shift, dtype=dtype, name=f"{layer.name}.bias")
    layer.attributes.pop("beta", None)
    graph.remove(norm, safe=True)
    return True


def _is_matrix(value: ir.Value | None) -> bool:
    """Whether `value` is known to have two axes, so that the channels of a batch norm are the columns of the product."""
    return value is not None and value.shape is not None and len(value.shape) == 2  # noqa: PLR2004


def _fold_product(graph: ir.Graph, layer: ir.Node, norm: ir.Node, affine: _Affine) -> bool:
    """MatMul, then batch norm: the norm becomes the Add of a bias, and keeps its name and output."""
    found = _weight(layer, 1)
    if found is None or found[1].ndim != 2 or not (_is_matrix(layer.inputs[0]) or _is_matrix(layer.outputs[0])):  # noqa: PLR2004
        return False
    _, weight, dtype = found
    _set(graph, layer, 1, weight * affine.scale, dtype=dtype, name=f"{layer.name}.weight")
    bias = add_initializer(graph, f"{layer.name}.bias", affine.shift.astype(dtype))
    add = ir.node("Add", [layer.outputs[0], bias], name=norm.name, outputs=None)
    replace_node(graph, norm, add)
    return True


def _fold_sum(graph: ir.Graph, layer: ir.Node, norm: ir.Node, affine: _Affine) -> bool:
    """MatMul, Add of a constant bias, then batch norm."""
    for position in (0, 1):
        product = layer.inputs[position]
        matmul = None if product is None else product.producer()
        bias = _weight(layer, 1 - position)
        if product is None or bias is None or not is_op(matmul, "MatMul") or not has_one_use(product):
            continue
        assert matmul is not None, "checked by is_op"
        found = _weight(matmul, 1)
        if found is None or found[1].ndim != 2 or not (_is_matrix(matmul.inputs[0]) or _is_matrix(product)):  # noqa: PLR2004
            continue
        if bias[1].size not in {1, affine.scale.size} or bias[1].ndim > 1 + (bias[1].shape[0] == 1):
            continue
        if not bypass(norm.outputs[0], layer.outputs[0]):
            return False
        _set(graph, matmul, 1, found[1] * affine.scale, dtype=found[2], name=f"{matmul.name}.weight")
        _set(graph, layer, 1 - position, bias[1].reshape(-1) * affine.scale + affine.shift, dtype=found[2], name=f"{matmul.name}.bias")
        graph.remove(norm, safe=True)
        return True
    return False


_LAYERS: dict[str, Callable[[ir.Graph, ir.Node, ir.Node, _Affine], bool]] = {
    "Conv": _fold_convolution,
    "ConvTranspose": _fold_convolution,
    "Gemm": _fold_gemm,
    "MatMul": _fold_product,
    "Add": _fold_sum,
}
