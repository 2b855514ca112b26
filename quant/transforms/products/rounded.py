"""A product of rows and a weight, computed with both sides rounded as a dialect rounds them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.formats import Grid, slice_extremes
from quant.transforms import Setting

Array = npt.NDArray[np.float32]


class Product:
    """`rows @ weights`, whose error in INT8 is wanted for several ranges of the rows.

    Args:
        setting: The dialect, and whether output channels have scales of their own.
        rows: `[rows, channels]`.
        weights: `[channels, out]`.
        wanted: The product that it ought to give, `[rows, out]`.
    """

    def __init__(self, setting: Setting, rows: npt.NDArray[Any], weights: npt.NDArray[Any], wanted: Array) -> None:
        self._setting = setting
        self._rows = rows.astype(np.float32, copy=False)
        self._weights = weights.astype(np.float32, copy=False)
        self._wanted = wanted

    @cached_property
    def _coarse(self) -> Array:
        axis = 1 if self._setting.per_channel else None
        return _quantized(self._weights, self._setting.dialect.weights, *slice_extremes(self._weights, axis), axis)

    def error(self, low: float, high: float) -> float:
        """Sum of squared differences to what is wanted when the rows are quantized between `low` and `high`."""
        grid = self._setting.dialect.activations
        if grid.symmetric:
            high = max(-low, high)
            low = -high
        found = _quantized(self._rows, grid, low, high, None) @ self._coarse
        return float(np.square(found - self._wanted, dtype=np.float64).sum())


def _quantized(values: Array, grid: Grid, low: npt.ArrayLike, high: npt.ArrayLike, axis: int | None) -> Array:
    params = grid.params(low, high)
    return grid.dequantize(grid.quantize(values, params, axis), params, axis)
