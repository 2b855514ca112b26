"""Grids of fewer codes than their type holds: for studies of low bit widths in engines that have no such type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quant.core.formats.grid import Grid


@dataclass(frozen=True)
class Narrowed(Grid):
    """An integer grid that keeps the type, and so the kernels, of a wider one.

    Args:
        carrier: The grid whose type the codes are written in.
    """

    carrier: Grid

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the carrier's codes."""
        return self.carrier.dtype


def narrowed(grid: Grid, bits: int) -> Grid:
    """`grid` with the codes of `bits` bits alone; itself when it has no more.

    Example:
        >>> from quant.core.formats import INT8, UINT8
        >>> three = narrowed(INT8, 3)
        >>> three.low, three.high, three.steps, three.dtype.name
        (-4, 3, 6, 'int8')
        >>> narrowed(UINT8, 4).high, narrowed(UINT8, 8) is UINT8
        (15, True)
    """
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if grid.low < 0 else (0, (1 << bits) - 1)
    if low <= grid.low and high >= grid.high:
        return grid
    return Narrowed(f"{grid.name} of {bits} bits", low, high, symmetric=grid.symmetric, carrier=grid)
