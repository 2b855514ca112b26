"""`uint8`: unsigned, with a zero point: 255 steps from end to end."""

from quant.core.formats.grid import Grid

UINT8 = Grid("uint8", 0, 255, symmetric=False)
