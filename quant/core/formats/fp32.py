"""`fp32`: IEEE single precision."""

import numpy as np

from quant.core.formats.floating import Plain

FP32 = Plain("fp32", np.dtype(np.float32))
