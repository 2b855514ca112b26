"""Blocks: what shares a scale and a zero point along a row of a weight, and what rounding one costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.formats import Codes, Grid, Params, slice_extremes, spread_out

Doubles = npt.NDArray[np.float64]
_AXIS = 1


@dataclass(frozen=True)
class Rounded:
    """A weight as codes.

    Args:
        codes: `[out, in]`.
        params: Scale (float32) and zero point, `[out, blocks]`; the last block of a row may be short.
    """

    codes: Codes
    params: Params


@dataclass(frozen=True)
class BlockGrid:
    """A grid in blocks along the rows of a weight.

    Args:
        grid: The codes.
        size: Values to a block.
        scale_type: NumPy type in which scales are stored: they are rounded to it before codes are chosen.
    """

    grid: Grid
    size: int
    scale_type: npt.DTypeLike = np.float32

    def params(self, low: Doubles, high: Doubles) -> Params:
        """Scale and zero point of blocks whose values lie between `low` and `high`.

        Example:
            >>> from quant.core.formats import INT4
            >>> p = BlockGrid(INT4, 16, np.float16).params(np.array([-0.7]), np.array([0.1]))
            >>> float(p.scale[0]) == float(np.float16(0.1))
            True
        """
        found = self.grid.params(low, high)
        kind: np.dtype[Any] = np.dtype(self.scale_type)
        if kind == np.float32:
            return found
        # Half of the smallest number above 0 would become 0, and codes would stand for nothing.
        least = np.float32(2.0**-24 if kind == np.float16 else np.finfo(np.float32).tiny)
        scale = np.maximum(found.scale, least).astype(kind).astype(np.float32)
        if self.grid.symmetric:
            return Params(scale, found.zero_point)
        bottom = np.minimum(low, 0.0)
        zero = np.clip(np.rint(self.grid.low - bottom / scale.astype(np.float64)), self.grid.low, self.grid.high)
        return Params(scale, zero.astype(self.grid.dtype))

    def extremes(self, weights: Doubles) -> tuple[Doubles, Doubles]:
        """Least and largest value of each block of `weights` `[out, in]`: two arrays `[out, blocks]`."""
        low, high = slice_extremes(weights, _AXIS, self.size)
        return np.asarray(low, np.float64), np.asarray(high, np.float64)

    def round(self, weights: Doubles, params: Params) -> Rounded:
        """`weights` as the nearest codes."""
        return Rounded(self.grid.quantize(weights, params, _AXIS, block_size=self.size), params)

    def values(self, rounded: Rounded) -> Doubles:
        """What the codes of `rounded` stand for, float64 `[out, in]`."""
        return self.grid.dequantize(rounded.codes, rounded.params, _AXIS, block_size=self.size).astype(np.float64)

    def nearest(self, weights: Doubles, params: Params) -> Doubles:
        """The values of `round(weights, params)`, without making codes."""
        scale, zero = (self.spread(np.asarray(a).astype(np.float64), weights.shape) for a in (params.scale, params.zero_point))
        codes = np.clip(np.rint(weights / scale) + zero, self.grid.low, self.grid.high)
        found: Doubles = ((codes - zero) * scale).astype(np.float32).astype(np.float64)
        return found

    def spread(self, per_block: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """`per_block` `[out, blocks]`, repeated for each value of a weight of `shape`."""
        return spread_out(per_block, shape, _AXIS, self.size)


def output_error(difference: Doubles, moments: Doubles) -> float:
    """Mean squared error of a layer's outputs, added up over them, when its weights `[out, in]` are off by `difference`.

    Example:
        >>> output_error(np.array([[1.0, -1.0]]), np.array([[4.0, 1.0], [1.0, 9.0]]))
        11.0
    """
    return float(np.sum((difference @ moments) * difference))
