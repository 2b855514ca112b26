"""`fp8`: E4M3FN, symmetric. Three bits of mantissa, values to 448 on each side and denormals down to 2^-9; no infinities, one NaN."""

from quant.core.formats.floating import FloatGrid

FP8 = FloatGrid("fp8", -448, 448, symmetric=True, mantissa=3, least_exponent=-6)
