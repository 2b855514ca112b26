"""`fp16`: IEEE half precision: values to 65,504, ten bits of mantissa."""

import numpy as np

from quant.core.formats.floating import Plain

FP16 = Plain("fp16", np.dtype(np.float16))
