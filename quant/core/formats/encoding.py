"""How ONNX writes a format."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

BLOCKED_OPSET = 21
"""First ONNX operator set whose QuantizeLinear and DequantizeLinear take blocks."""


class Encoding(NamedTuple):
    """How ONNX writes a format.

    Args:
        data_type: Number of the type in `TensorProto.DataType`.
        opset: First operator set in which the format can be had: by Q/DQ with an axis, or by Cast.
        bits: Size of a value; values of 4 bits lie two to a byte, the first in the low half.
    """

    data_type: int
    opset: int
    bits: int

    def least_opset(self, *, block_size: int = 0) -> int:
        """First operator set in which this format can be had in such blocks (0: in none)."""
        return max(self.opset, BLOCKED_OPSET) if block_size else self.opset


_ENCODINGS = {
    np.dtype(np.float32): Encoding(1, 6, 32),
    np.dtype(np.uint8): Encoding(2, 13, 8),
    np.dtype(np.int8): Encoding(3, 13, 8),
    np.dtype(np.float16): Encoding(10, 6, 16),
    np.dtype(ml_dtypes.bfloat16): Encoding(16, 13, 16),
    np.dtype(ml_dtypes.float8_e4m3fn): Encoding(17, 19, 8),
    np.dtype(ml_dtypes.uint4): Encoding(21, 21, 4),
    np.dtype(ml_dtypes.int4): Encoding(22, 21, 4),
}


def encoding_of(dtype: np.dtype[Any]) -> Encoding:
    """How ONNX writes values of `dtype`."""
    return _ENCODINGS[dtype]


def quantizer_attributes(axis: int | None, block_size: int = 0) -> dict[str, int]:
    """Attributes of QuantizeLinear and DequantizeLinear: none for a whole tensor.

    Example:
        >>> quantizer_attributes(None), quantizer_attributes(0), quantizer_attributes(1, 64)
        ({}, {'axis': 0}, {'axis': 1, 'block_size': 64})
    """
    if axis is None:
        return {}
    return {"axis": axis, "block_size": block_size} if block_size else {"axis": axis}
