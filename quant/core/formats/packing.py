"""Bits: codes as the bytes that ONNX keeps of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from quant.core.formats.encoding import encoding_of
from quant.core.formats.params import Codes

_NIBBLE = 4


def pack(codes: Codes) -> npt.NDArray[np.uint8]:
    """The bytes of `codes`, `[bytes]`: little-endian, codes of 4 bits two to a byte with the first in the low half.

    Example:
        >>> import ml_dtypes
        >>> pack(np.array([-8, 7, 3]).astype(ml_dtypes.int4)).tolist()
        [120, 3]
    """
    flat = np.ascontiguousarray(codes).reshape(-1)
    if encoding_of(codes.dtype).bits != _NIBBLE:
        little: npt.NDArray[np.uint8] = flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8)
        return little
    halves = flat.astype(np.int8).view(np.uint8) & 15
    if halves.size % 2:
        halves = np.append(halves, np.uint8(0))
    packed: npt.NDArray[np.uint8] = np.bitwise_or(halves[::2], halves[1::2] << _NIBBLE)
    return packed


def unpack(data: npt.NDArray[np.uint8], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Codes:
    """The codes of `dtype` and `shape` whose bytes are `data`.

    Raises:
        ValueError: `data` has not as many bytes as that takes.

    Example:
        >>> import ml_dtypes
        >>> unpack(np.uint8([120, 3]), np.dtype(ml_dtypes.int4), (3,)).astype(int).tolist()
        [-8, 7, 3]
    """
    count, bits = int(np.prod(shape)), encoding_of(dtype).bits
    needed = -(-count * bits // 8)
    if data.size != needed:
        raise ValueError(f"{count} values of {bits} bits take {needed} bytes, not {data.size}")
    if bits != _NIBBLE:
        return data.view(dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
    halves = np.stack([data & 15, data >> _NIBBLE], axis=1).reshape(-1)[:count]
    signed = np.right_shift(np.left_shift(halves, _NIBBLE).view(np.int8), _NIBBLE)  # the sign of four bits carried on to eight
    return (signed if dtype == np.dtype(ml_dtypes.int4) else halves).astype(dtype).reshape(shape)
