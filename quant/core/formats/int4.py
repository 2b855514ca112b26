"""`int4`: signed, symmetric: 7 steps to each side of 0."""

from quant.core.formats.grid import Grid

INT4 = Grid("int4", -8, 7, symmetric=True)
