"""Number formats and their arithmetic, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from quant.core.formats.grid import Grid
from quant.core.formats.int4 import INT4
from quant.core.formats.int8 import INT8
from quant.core.formats.params import Codes, Params, Range, slice_extremes, spread_out
from quant.core.formats.uint4 import UINT4
from quant.core.formats.uint8 import UINT8

GRIDS: Mapping[str, Grid] = {grid.name: grid for grid in (INT8, UINT8, INT4, UINT4)}
"""Formats whose codes are read with a scale, by name."""

FORMATS = ("fp32", "fp16", "bf16", *GRIDS)
"""Names of the number formats that plans may give to a layer."""

__all__ = ["FORMATS", "GRIDS", "INT4", "INT8", "UINT4", "UINT8", "Codes", "Grid", "Params", "Range", "slice_extremes", "spread_out"]
