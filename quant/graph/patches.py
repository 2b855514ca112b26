"""Layers as products of matrices: what a convolution multiplies at one place is a row, its kernel a matrix for each of its groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.layers import Layer
from quant.graph.model import attribute, constant
from quant.graph.names import Names
from quant.graph.scaling import rows_in, scalable, write_rows, write_weight

Floats = npt.NDArray[np.float32]
_SPATIAL = 2
"""Axes of a convolution's input before its spatial ones."""


def is_product(layer: Layer) -> bool:
    """Whether `layer` multiplies rows, or patches, of its input by a constant matrix."""
    if layer.op != "Conv":
        return scalable(layer)
    return layer.weight == 1 and attribute(layer.node, "auto_pad", "NOTSET") in {"NOTSET", "VALID"}


def matrices(layer: Layer) -> Floats:
    """The weight as one matrix for each group, float32 `[groups, out, in]`."""
    if layer.op != "Conv":
        return rows_in(layer).T[None]
    weights = constant(layer.node.inputs[1])
    assert weights is not None, "a weight is constant"
    groups = int(attribute(layer.node, "group", 1))
    return np.asarray(weights, np.float32).reshape(groups, weights.shape[0] // groups, -1)


def write_matrices(graph: ir.Graph, layer: Layer, weights: npt.NDArray[np.floating], names: Names) -> None:
    """Give `layer` the weight `weights`, `[groups, out, in]`; other readers of the old one keep it."""
    if layer.op != "Conv":
        write_rows(graph, layer, weights[0].T, names)
        return
    shape = layer.weight_shape
    assert shape is not None, "a layer with a weight has its shape"
    write_weight(graph, layer, weights.reshape(shape), names)


def same_rows(layer: Layer) -> tuple[Any, ...]:
    """Equal for layers that multiply the same rows: the tensor, and how it is cut."""
    source = layer.node.inputs[0]
    name = "" if source is None else str(source.name)
    return (name,) if layer.op != "Conv" else (name, int(attribute(layer.node, "group", 1)), *_window(layer))


def cut_rows(layer: Layer, array: npt.NDArray[Any], count: int) -> Floats:
    """At most `count` of the rows that `layer` multiplies, evenly spaced, float32 `[groups, rows, in]`.

    Args:
        layer: An `is_product` layer.
        array: What it reads.
        count: Rows, at most.
    """
    if layer.op != "Conv":
        rows = array.reshape(-1, array.shape[-1])
        return np.asarray(rows[_spaced(len(rows), count)], np.float32)[None]
    kernel, strides, pads, dilations = _window(layer)
    rank = len(kernel)
    padded = np.pad(array, [(0, 0)] * _SPATIAL + [(pads[i], pads[i + rank]) for i in range(rank)])
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(_SPATIAL, _SPATIAL + rank)))
    every = [slice(None)] * _SPATIAL + [slice(None, None, s) for s in strides] + [slice(None, None, d) for d in dilations]
    view = np.moveaxis(windows[tuple(every)], 1, rank + 1)  # [batch, *places, channels, *kernel]
    places = view.shape[: rank + 1]
    picked = view[np.unravel_index(_spaced(int(np.prod(places)), count), places)]
    groups = int(attribute(layer.node, "group", 1))
    return np.ascontiguousarray(picked.reshape(len(picked), groups, -1).transpose(1, 0, 2), np.float32)


def _window(layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, strides, pads (all starts, then all ends) and dilations of a convolution."""
    shape = layer.weight_shape
    assert shape is not None, "a layer with a weight has its shape"
    rank = len(shape) - _SPATIAL

    def told(name: str, default: Sequence[int]) -> tuple[int, ...]:
        return tuple(int(v) for v in attribute(layer.node, name, default))

    pads = told("pads", [0] * 2 * rank) if attribute(layer.node, "auto_pad", "NOTSET") == "NOTSET" else (0,) * 2 * rank
    return shape[_SPATIAL:], told("strides", [1] * rank), pads, told("dilations", [1] * rank)


def _spaced(total: int, count: int) -> npt.NDArray[np.int64]:
    return ((np.arange(count) + 0.5) * total / count).astype(np.int64) if total > count else np.arange(total)
