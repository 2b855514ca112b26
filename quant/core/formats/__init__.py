"""Number formats and their arithmetic, one file each."""

from __future__ import annotations

from collections.abc import Mapping

from quant.core.formats.bf16 import BF16
from quant.core.formats.encoding import Encoding, quantizer_attributes
from quant.core.formats.fake import fake_quantize
from quant.core.formats.floating import FloatGrid, Plain
from quant.core.formats.fp8 import FP8
from quant.core.formats.fp16 import FP16
from quant.core.formats.fp32 import FP32
from quant.core.formats.grid import Grid
from quant.core.formats.int4 import INT4
from quant.core.formats.int8 import INT8
from quant.core.formats.packing import pack, unpack
from quant.core.formats.params import Codes, Params, Range, slice_extremes, spread_out
from quant.core.formats.uint4 import UINT4
from quant.core.formats.uint8 import UINT8

GRIDS: Mapping[str, Grid] = {grid.name: grid for grid in (INT8, UINT8, FP8, INT4, UINT4)}
"""Formats whose codes are read with a scale, by name."""

FORMATS: Mapping[str, Grid | Plain] = {plain.name: plain for plain in (FP32, FP16, BF16)} | dict(GRIDS)
"""The number formats that plans may give to a layer, by name."""

__all__ = [
    "BF16",
    "FORMATS",
    "FP8",
    "FP16",
    "FP32",
    "GRIDS",
    "INT4",
    "INT8",
    "UINT4",
    "UINT8",
    "Codes",
    "Encoding",
    "FloatGrid",
    "Grid",
    "Params",
    "Plain",
    "Range",
    "fake_quantize",
    "pack",
    "quantizer_attributes",
    "slice_extremes",
    "spread_out",
    "unpack",
]
