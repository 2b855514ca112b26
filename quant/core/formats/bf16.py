"""`bf16`: the upper half of a float32: its whole reach, seven bits of mantissa."""

import ml_dtypes
import numpy as np

from quant.core.formats.floating import Plain

BF16 = Plain("bf16", np.dtype(ml_dtypes.bfloat16))
