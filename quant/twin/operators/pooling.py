"""Pooling and resizing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.nn import functional

from quant.twin.operators import Call, Unsupported, operator
from quant.twin.operators.products import explicit_padding, geometry, same_padding

_MAX = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def _sides(x: torch.Tensor, kernel: list[int], pads: list[int] | str, strides: list[int], dilations: list[int], ceil: int) -> list[Any]:
    """Padding of each side in torch's order, with what `ceil_mode` adds at the end of each axis."""
    if isinstance(pads, str):
        return same_padding(x.shape[2:], kernel, strides, dilations, upper=pads == "SAME_UPPER")
    sides: list[Any] = explicit_padding(pads)
    if ceil:
        rank = len(kernel)
        for i in range(rank):
            begin, end = pads[i], pads[i + rank]
            over = (x.shape[2 + i] + begin + end - (kernel[i] - 1) * dilations[i] - 1) % strides[i]
            more = strides[i] - over if over else 0
            # A window that would start in the padding at the end is left out.
            starts = (x.shape[2 + i] + begin + end - (kernel[i] - 1) * dilations[i] - 1) // strides[i] * strides[i] + strides[i]
            sides[2 * (rank - 1 - i) + 1] += more if over and starts < x.shape[2 + i] + begin else 0
    return sides


def max_pool(x: torch.Tensor, kernel: list[int], pads: list[int] | str, strides: list[int], dilations: list[int], ceil: int) -> torch.Tensor:
    """`MaxPool`: padding never wins."""
    given = x.dtype
    x = x if x.is_floating_point() else x.to(torch.float32)
    sides = _sides(x, kernel, pads, strides, dilations, ceil)
    if any(not isinstance(s, int) or s for s in sides):
        x = functional.pad(x, sides, value=-math.inf)
    return _MAX[len(kernel)](x, kernel, strides, 0, dilations).to(given)


@operator("MaxPool")
def _max_pool(call: Call) -> fx.Node | tuple[fx.Node | None, ...]:
    kernel = call.attribute("kernel_shape")
    if len(call.node.output) > 1 or len(kernel) not in _MAX:
        return call.otherwise()
    return call.emit(max_pool, call.tensor(), kernel, *geometry(call, len(kernel)), call.attribute("ceil_mode", 0))


def average_pool(x: torch.Tensor, kernel: list[int], pads: list[int] | str, strides: list[int], whole: int) -> torch.Tensor:
    """`AveragePool`: over the values of a window, or with its padding as zeros."""
    sides = _sides(x, kernel, pads, strides, [1] * len(kernel), 0)
    if all(isinstance(s, int) and s == 0 for s in sides):
        return _AVERAGE[len(kernel)](x, kernel, strides)
    mean = _AVERAGE[len(kernel)](functional.pad(x, sides), kernel, strides)
    if whole:
        return mean
    return mean / _AVERAGE[len(kernel)](functional.pad(torch.ones_like(x), sides), kernel, strides)


@operator("AveragePool")
def _average_pool(call: Call) -> fx.Node | tuple[fx.Node | None, ...]:
    kernel = call.attribute("kernel_shape")
    pads, strides, dilations = geometry(call, len(kernel))
    if call.attribute("ceil_mode", 0) or set(dilations) != {1} or len(kernel) not in _AVERAGE:
        return call.otherwise()
    return call.emit(average_pool, call.tensor(), kernel, pads, strides, call.attribute("count_include_pad", 0))


def _cubic(t: np.ndarray[Any, Any], a: float) -> np.ndarray[Any, Any]:
    t = np.abs(t)
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))  # noqa: PLR2004 - the kernel reaches 2 to each side


def source_places(length: int, size: int, scale: float, how: str, roi: tuple[float, float] | None) -> np.ndarray[Any, Any]:
    """Where each of `size` output places lies along an input axis of `length`, in input steps."""
    out = np.arange(size, dtype=np.float64)
    exact, middle = scale * length, (out + 0.5) / scale - 0.5
    if how == "tf_crop_and_resize":
        start, end = roi or (0.0, 1.0)
        along = 0.5 if size == 1 else out / (exact - 1)
        return out * 0 + (start + along * (end - start)) * (length - 1)
    rules = {
        "align_corners": out * 0 if exact == 1 else out * (length - 1) / max(exact - 1, 1e-9),
        "asymmetric": out / scale,
        "half_pixel": middle,
        "half_pixel_symmetric": length / 2 * (1 - size / exact) + middle,
        "pytorch_half_pixel": middle if size > 1 else out * 0 - 0.5,
    }
    return rules[how]


def nearest_places(places: np.ndarray[Any, Any], how: str) -> np.ndarray[Any, Any]:
    """The input place nearest to each; `how` settles ties."""
    rules: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda p: np.ceil(p - 0.5),
        "round_prefer_ceil": lambda p: np.floor(p + 0.5),
    }
    found: np.ndarray[Any, Any] = rules[how](places).astype(np.int64)
    return found


def interpolation(length: int, places: np.ndarray[Any, Any], scale: float, told: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The matrix `[output, input]` that interpolates one axis."""
    squeeze = min(scale, 1.0) if told["antialias"] else 1.0
    reach = (2 if told["mode"] == "cubic" else 1) / squeeze
    low = math.floor(float(places.min()) - reach) if len(places) else 0
    high = math.ceil(float(places.max()) + reach) if len(places) else 0
    steps = np.arange(min(low, 0), max(high, length - 1) + 1)
    distance = (steps[None, :] - places[:, None]) * squeeze
    weights = _cubic(distance, told["a"]) if told["mode"] == "cubic" else np.clip(1 - np.abs(distance), 0, 1)
    if told["exclude_outside"]:
        weights = weights * ((steps >= 0) & (steps < length))[None, :]
    if told["exclude_outside"] or told["antialias"]:
        weights = weights / weights.sum(1, keepdims=True)
    out = np.zeros((len(places), length))
    np.add.at(out.T, np.clip(steps, 0, length - 1), weights.T)
    return out


def _factors(x: torch.Tensor, scales: list[float] | None, sizes: Any, axes: list[int], policy: str) -> tuple[list[float], list[int]]:
    if scales is not None:
        return list(scales), [x.shape[a] if s == 1 else math.floor(x.shape[a] * s) for a, s in zip(axes, scales, strict=True)]
    ratios = [s / x.shape[a] for a, s in zip(axes, sizes, strict=True)]
    if policy == "stretch":
        return ratios, list(sizes)
    one = min(ratios) if policy == "not_larger" else max(ratios)
    return [one] * len(axes), [math.floor(one * x.shape[a] + 0.5) for a in axes]


def _only_repeats(factor: float, told: dict[str, Any]) -> bool:
    """Whether every value is written `factor` times, whatever the length is."""
    rules = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}
    return told["mode"] == "nearest" and factor == int(factor) and factor > 1 and (told["how"], told["nearest"]) in rules


def resize(x: torch.Tensor, scales: list[float] | None, sizes: Any, roi: list[float] | None, told: dict[str, Any]) -> torch.Tensor:
    """`Resize`, one axis after the other: interpolation is separable."""
    axes = [a % x.dim() for a in told["axes"]] if told["axes"] else list(range(x.dim()))
    factors, lengths = _factors(x, scales, sizes, axes, told["policy"])
    outside = None
    for i, axis in enumerate(axes):
        if told["how"] != "tf_crop_and_resize" and (factors[i] == 1 if sizes is None else bool(lengths[i] == x.shape[axis])):
            continue  # without a look at the length, which may be a symbol
        if sizes is None and _only_repeats(factors[i], told):
            x = torch.repeat_interleave(x, int(factors[i]), axis)
            continue
        length, size = int(x.shape[axis]), int(lengths[i])
        window = (roi[i], roi[i + len(axes)]) if roi else None
        places = source_places(length, size, factors[i], told["how"], window)
        if told["mode"] == "nearest":
            x = torch.index_select(x, axis, torch.from_numpy(np.clip(nearest_places(places, told["nearest"]), 0, length - 1)))
        else:
            matrix = torch.from_numpy(interpolation(length, places, factors[i], told)).to(x.dtype)
            x = torch.movedim(torch.matmul(torch.movedim(x, axis, -1), matrix.t()), -1, axis)
        if told["how"] == "tf_crop_and_resize":
            view = [1] * x.dim()
            view[axis] = -1
            beyond = torch.from_numpy((places < 0) | (places > length - 1)).reshape(view)
            outside = beyond if outside is None else outside | beyond
    return x if outside is None else torch.where(outside, torch.as_tensor(told["extrapolation"], dtype=x.dtype), x)


@operator("Resize")
def _resize(call: Call) -> fx.Node:
    told = {"how": call.attribute("coordinate_transformation_mode", "half_pixel"), "nearest": call.attribute("nearest_mode", "round_prefer_floor")}
    told["mode"] = call.attribute("mode", "nearest")
    roi = call.number(1) if told["how"] == "tf_crop_and_resize" else None
    scales = None if call.has(3) else call.number(2)
    sizes = call.number(3)
    told |= {"a": call.attribute("cubic_coeff_a", -0.75), "exclude_outside": call.attribute("exclude_outside", 0), "antialias": call.attribute("antialias", 0)}
    told |= {"axes": call.attribute("axes"), "extrapolation": call.attribute("extrapolation_value", 0.0)}
    told |= {"policy": call.attribute("keep_aspect_ratio_policy", "stretch")}
    if told["mode"] not in {"nearest", "linear", "cubic"}:
        raise Unsupported(f"mode {told['mode']}")
    return call.emit(resize, call.tensor(), scales, sizes, roi, told)
