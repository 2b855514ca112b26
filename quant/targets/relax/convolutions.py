"""Convolutions: ONNX -> kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from quant.targets.relax import kernels
from quant.targets.relax.graph import Graph, array, inputs_of, shape_of
from quant.targets.relax.products import scaled
from quant.targets.relax.tiles import pack


def conv(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`Conv`, with any number of groups."""
    x, w, bias = inputs_of(inputs, 3)
    shape = shape_of(w)
    group, channels = int(attrs.get("group", 1)), shape[0]
    if not all(isinstance(n, int) for n in (shape_of(x)[1], *shape)):
        return None
    window = _window(attrs, len(shape) - 2)
    weights = graph.symmetric(w, axis=0)
    codes = graph.left(x) if weights is not None else None
    if codes is not None and weights is not None:
        data = graph.last.of(codes.values)
        sums = _slid(graph, name, data, weights.codes, window=window, group=group, zero=codes.zero)
        sums = scaled(graph, sums, codes, weights, columns=weights.codes.reshape(channels, -1).sum(axis=1, dtype=np.int64))
    elif (constant := array(w)) is not None:
        sums = _slid(graph, name, graph.last.of(x), constant, window=window, group=group)
    else:
        sums = graph.kernel("direct", lambda d, k: kernels.direct(d, k, layer=name, window=window, group=group), x, w)
        bias = bias if bias is None else graph.emit(relax.op.reshape(bias, [1, -1] + [1] * (len(shape) - 2)))
        return graph.plus(sums, bias, x)
    return graph.last.first(graph.plus(sums, bias, x))


def _slid(graph: Graph, name: str, data: Any, weights: npt.NDArray[Any], *, window: kernels.Window, group: int, zero: int = 0) -> Any:
    """Sums of a convolution over `data`, both with their channels last."""
    channels = weights.shape[0]
    if group == 1:
        packed = pack(weights)
        return graph.kernel("convolution", lambda d, k: kernels.convolution(d, k, layer=name, channels=channels, window=window, zero=zero), data, packed)
    if channels == group == shape_of(data)[-1]:
        by_channel = np.ascontiguousarray(np.moveaxis(weights[:, 0], 0, -1))
        return graph.kernel("depthwise", lambda d, k: kernels.depthwise(d, k, layer=name, window=window, zero=zero), data, by_channel)
    share = channels // group
    packed = np.stack([pack(part) for part in np.split(weights, group)])
    sums = graph.kernel("grouped", lambda d, k: kernels.grouped(d, k, layer=name, channels=share, window=window, zero=zero), data, packed)
    rank = len(shape_of(sums))
    behind = graph.emit(relax.op.permute_dims(sums, [0, *range(2, rank - 1), 1, rank - 1]))
    return graph.emit(relax.op.reshape(behind, [*shape_of(behind)[:-2], channels]))


def conv_transpose(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`ConvTranspose`, as a convolution over the input with zeros between its values; its weight is turned around."""
    x, w, bias = inputs_of(inputs, 3)
    weights, shape = array(w), shape_of(w)
    plain = attrs.get("auto_pad", b"NOTSET") == b"NOTSET" and "output_shape" not in attrs and int(attrs.get("group", 1)) == 1
    if weights is None or not plain:
        return None
    axes = len(shape) - 2
    strides, dilations = tuple(attrs.get("strides", [1] * axes)), tuple(attrs.get("dilations", [1] * axes))
    pads, more = list(attrs.get("pads", [0] * 2 * axes)), list(attrs.get("output_padding", [0] * axes))
    reach = [(k - 1) * d for k, d in zip(shape[2:], dilations, strict=True)]
    before = [r - p for r, p in zip(reach, pads[:axes], strict=True)]
    behind = [r - p + m for r, p, m in zip(reach, pads[axes:], more, strict=True)]
    if min(*before, *behind) < 0:
        return None
    turned = np.flip(np.swapaxes(weights, 0, 1), axis=tuple(range(2, weights.ndim)))
    window = kernels.Window((1,) * axes, dilations, (*map(int, before), *map(int, behind)))

    def compute(data: Any, packed: Any) -> Any:
        return kernels.convolution(kernels.spread(data, strides), packed, layer=name, channels=shape[1], window=window)

    sums = graph.kernel("transposed", compute, graph.last.of(x), pack(np.ascontiguousarray(turned)))
    return graph.last.first(graph.plus(sums, bias, x))


def _window(attrs: dict[str, Any], axes: int) -> kernels.Window:
    strides, dilations = tuple(attrs.get("strides", [1] * axes)), tuple(attrs.get("dilations", [1] * axes))
    match attrs.get("auto_pad", b"NOTSET").decode():
        case "SAME_UPPER":
            return kernels.Window(strides, dilations, same="behind")
        case "SAME_LOWER":
            return kernels.Window(strides, dilations, same="before")
        case "VALID":
            return kernels.Window(strides, dilations, (0,) * (2 * axes))
        case _:
            return kernels.Window(strides, dilations, tuple(map(int, attrs.get("pads", [0] * (2 * axes)))))
