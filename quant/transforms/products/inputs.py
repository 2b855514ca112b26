"""What layers multiply, as it is when it is quantized, and how its channels move together."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.formats import Range
from quant.graph.layers import Layer
from quant.graph.patches import is_product, matrices
from quant.graph.planning import planned
from quant.transforms import Setting

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
_CHUNK = 512
_MOST_INPUTS = 4096
"""Inputs of one output, at most: second moments of more take more memory and time than they are worth."""


def products(model: ir.Model, setting: Setting) -> list[Layer]:
    """Layers of the plan that multiply rows by a constant matrix of no more than 4,096 rows."""
    return [layer for layer in planned(model, setting.plan) if is_product(layer) and matrices(layer).shape[2] <= _MOST_INPUTS]


def quantized(rows: Floats, layers: Collection[Layer], setting: Setting, ranges: Mapping[str, Range]) -> Floats:
    """`rows` that `layers` multiply, each value replaced by that of its code; as they are where no range is known."""
    source = next(iter(layers)).node.inputs[0]
    found = ranges.get("" if source is None else str(source.name))
    if found is None:
        return rows
    grid = setting.dialect.activations
    params = grid.params(*found)
    return grid.dequantize(grid.quantize(rows, params), params)


def moments(left: Floats, right: Floats) -> Doubles:
    """The mean of x yᵀ over rows x of `left` and y of `right`, `[groups, rows, in]` each; float64 `[groups, in, in]`."""
    total: Doubles = np.zeros((left.shape[0], left.shape[2], right.shape[2]))
    for start in range(0, left.shape[1], _CHUNK):
        part = slice(start, start + _CHUNK)
        total += left[:, part].transpose(0, 2, 1) @ right[:, part]  # few rows at a time: float32 holds their sum well enough
    total /= left.shape[1]
    return total


def damped(second: Doubles, share: float) -> Doubles:
    """Second moments `[groups, in, in]` with `share` of the mean of their diagonal added to it, so that they can be inverted."""
    mean = np.einsum("gii->g", second) / second.shape[1]
    added = np.where(mean > 0, share * mean, 1.0)
    found: Doubles = second + added[:, None, None] * np.eye(second.shape[1])
    return found
