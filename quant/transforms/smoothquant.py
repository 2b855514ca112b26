"""`smoothquant`: channels that dwarf the others are divided before they are quantized, and the weights make up for it.

One step of an activation's grid is as wide as its largest channel demands; the small channels drown in it. Dividing channel j
by `s_j = max|x_j|^a / max|w_j|^(1-a)` and multiplying row j of the weight by it leaves the product as it was and moves part of
the trouble into the weight, which has a scale for each output channel (Xiao et al. 2023, "SmoothQuant: Accurate and Efficient
Post-Training Quantization for Large Language Models"). The strength `a` is chosen for each tensor by the error of what its layers give,
on rows of calibration data; layers that read one tensor share it. A tensor that no strength helps enough is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from pydantic import Field
from threadpoolctl import threadpool_limits

from quant.core.parallel import ordered_map
from quant.core.registry import Options as PluginOptions
from quant.graph.layers import Layer
from quant.graph.planning import planned
from quant.graph.scaling import Scale, by_tensor, divide, rows_in
from quant.transforms import TRANSFORMS, Change, Rows, Seen, Setting
from quant.transforms.products.rounded import Product

Array = npt.NDArray[np.float32]
_CUTS = (1.0, 0.85, 0.7, 0.5)
"""Shares of the extremes that a range may end at: what a calibrator could choose, tried so that strengths are compared at their best."""
_NOTHING = 1e-12


@TRANSFORMS.add
class SmoothQuant:
    """Moves the trouble of activations with large channels into weights."""

    kind: ClassVar[str] = "smoothquant"
    bases: ClassVar[frozenset[str]] = frozenset({"int8"})
    keeps_function: ClassVar[bool] = True
    keeps_tensors: ClassVar[bool] = False

    class Options(PluginOptions):
        """Options of `smoothquant`."""

        strengths: tuple[float, ...] = Field((0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), min_length=1)
        """Strengths to choose from: 0 leaves activations as they are and evens out the weights, 1 evens out the activations."""
        gain: float = Field(1.5, ge=1)
        """A tensor is smoothed when that divides the squared error of its layers by at least so much."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tensors(self, model: ir.Model, setting: Setting) -> frozenset[str]:
        """What layers of the plan multiply by a constant matrix."""
        return frozenset(by_tensor(planned(model, setting.plan)))

    def apply(self, model: ir.Model, setting: Setting, seen: Seen) -> Change:
        """Smooth every tensor that gains from it."""
        groups = by_tensor(planned(model, setting.plan))
        values = {str(v.name): v for v in (*model.graph.inputs, *(v for node in model.graph for v in node.outputs))}
        done: dict[str, str] = {}
        with threadpool_limits(1):  # sums over several threads depend on their number
            found = list(ordered_map(lambda name: self._search(seen.rows[name], groups[name], setting), groups))
        for name, (strength, scale, gain) in zip(groups, found, strict=True):
            if scale is not None:
                where = divide(model.graph, values[name], scale, groups[name])
                done |= {layer.name: f"smoothed with strength {strength:g}, error divided by {gain:.1f}; {where}" for layer in groups[name]}
        return Change(done)

    def _search(self, rows: Rows, layers: Sequence[Layer], setting: Setting) -> tuple[float, Scale | None, float]:
        """(strength, scale, gain) of the best strength; no scale when none is worth it."""
        weights = np.concatenate([rows_in(layer) for layer in layers], axis=1)
        wanted = rows.values @ weights
        tops = np.abs(weights).max(axis=1)
        plain = _error(rows, weights, np.ones(len(weights)), wanted=wanted, setting=setting)
        trials = []
        for strength in self.options.strengths:
            scale = smoothing_scale(rows.guide.tops, tops, strength)
            trials.append((_error(rows, weights, scale, wanted=wanted, setting=setting), strength))
        error, strength = min(trials)
        gain = plain / max(error, _NOTHING * max(plain, _NOTHING))
        return strength, smoothing_scale(rows.whole.tops, tops, strength) if gain >= self.options.gain else None, gain


def smoothing_scale(tops: Array, weights: Array, strength: float) -> Scale:
    """`s_j` for each channel, its geometric mean 1; 1 where a channel or its weights are nothing but zeros.

    Args:
        tops: Largest magnitude of each channel, `[channels]`.
        weights: Largest magnitude of each channel's weights, `[channels]`.
        strength: From 0 (even out the weights) to 1 (even out the activations).

    Example:
        >>> smoothing_scale(np.float32([1, 16]), np.float32([1, 1]), 0.5).tolist()
        [0.5, 2.0]
    """
    top, row = tops.astype(np.float64), weights.astype(np.float64)
    alive = (top > 0) & (row > 0)
    logs = strength * np.log(np.where(alive, top, 1)) - (1 - strength) * np.log(np.where(alive, row, 1))
    logs = np.where(alive, logs - (logs[alive].mean() if alive.any() else 0), 0)
    return np.asarray(np.exp(logs), np.float64)


def _error(rows: Rows, weights: Array, scale: Scale, *, wanted: Array, setting: Setting) -> float:
    """Squared error of the product when both sides are scaled and quantized, at the best of a few ranges."""
    scaled = Product(setting, rows.values / scale, weights * scale[:, None], wanted)
    low, high = rows.guide.divided(scale)
    return min(scaled.error(low * share, high * share) for share in _CUTS)
