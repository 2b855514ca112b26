"""Grids of fewer codes than their type holds."""

import numpy as np
import pytest

from quant.core.formats import INT8, UINT8, Params
from quant.core.formats.narrowed import narrowed


@pytest.mark.parametrize(("bits", "low", "high"), [(2, -2, 1), (3, -4, 3), (4, -8, 7), (7, -64, 63)])
def test_a_signed_grid_has_the_codes_of_its_bits_and_keeps_its_type(bits, low, high):
    grid = narrowed(INT8, bits)
    assert (grid.low, grid.high, grid.dtype, grid.symmetric, grid.encoding) == (low, high, np.int8, True, INT8.encoding)
    codes = grid.quantize(np.float32([-99, -0.5, 0.5, 1.5, 99]), Params(np.float32(1), np.int8(0)))
    assert codes.dtype == np.int8
    assert codes.tolist() == [low, 0, 0, min(2, high), high]


def test_an_unsigned_grid_keeps_its_zero_point_inside():
    grid = narrowed(UINT8, 3)
    params = grid.params(-1.0, 6.0)
    assert (float(params.scale), int(params.zero_point), params.zero_point.dtype) == (1.0, 1, np.uint8)
    assert grid.dequantize(grid.quantize(np.float32([-5, -1, 0, 6, 9]), params), params).tolist() == [-1, -1, 0, 6, 6]


def test_as_many_bits_as_it_has_leave_a_grid_as_it_is():
    assert narrowed(INT8, 8) is INT8
    assert narrowed(UINT8, 8) is UINT8
    assert narrowed(INT8, 3) == narrowed(INT8, 3) != narrowed(INT8, 4)
