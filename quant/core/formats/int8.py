"""`int8`: signed, symmetric: 127 steps to each side of 0."""

from quant.core.formats.grid import Grid

INT8 = Grid("int8", -128, 127, symmetric=True)
