"""`uint4`: unsigned, with a zero point: 15 steps from end to end."""

from quant.core.formats.grid import Grid

UINT4 = Grid("uint4", 0, 15, symmetric=False)
