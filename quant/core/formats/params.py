"""What a tensor's codes are read with: a scale and a zero point for the whole tensor, for each slice of an axis, or for each block along it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quant.core.statistics import Floats

Codes = npt.NDArray[Any]
"""Codes, in the type of their format: `int8`, `uint8`, or one of `ml_dtypes` (`int4`, `uint4`, `float8_e4m3fn`)."""


class Range(NamedTuple):
    """The real values that a format must be able to write: from `low` to `high`."""

    low: float
    high: float


@dataclass(frozen=True)
class Params:
    """Scale and zero point of a tensor, or of each slice or block of it.

    Args:
        scale: float32, positive and finite; `[]` for the whole tensor, `[n]` for the slices of an axis of length n, and for blocks
            of b values along an axis the tensor's own shape with `ceil(n / b)` along that axis (the last block may be short).
        zero_point: codes, in the shape of `scale`.
    """

    scale: npt.NDArray[np.float32]
    zero_point: Codes


def spread_out(per_part: npt.NDArray[Any], shape: tuple[int, ...], axis: int | None, block_size: int = 0) -> npt.NDArray[Any]:
    """`per_part` (see `Params.scale`) so that it broadcasts against an array of `shape`.

    Raises:
        ValueError: Blocks without an axis, or `per_part` has another number of slices or blocks than `shape` needs.

    Example:
        >>> spread_out(np.array([1, 2]), (2, 3), 0).tolist()
        [[1], [2]]
        >>> spread_out(np.array([[1, 2]]), (1, 3), 1, block_size=2).tolist()
        [[1, 1, 2]]
    """
    if per_part.ndim == 0:
        return per_part
    if block_size:
        if axis is None:
            raise ValueError("blocks need an axis to lie along")
        length = shape[axis]
        blocked = tuple(-(-n // block_size) if i == axis % len(shape) else n for i, n in enumerate(shape))
        if per_part.shape != blocked:
            raise ValueError(f"blocks of {block_size} along axis {axis} of {list(shape)} need scales of shape {list(blocked)}, not {list(per_part.shape)}")
        return np.take(np.repeat(per_part, block_size, axis=axis), np.arange(length), axis=axis)
    if axis is None:
        return per_part
    if per_part.shape != (shape[axis],):
        raise ValueError(f"axis {axis} of {list(shape)} needs {shape[axis]} scales, not {list(per_part.shape)}")
    lengths = [1] * len(shape)
    lengths[axis] = -1
    return per_part.reshape(lengths)


def slice_extremes(values: Floats, axis: int | None, block_size: int = 0) -> tuple[Floats, Floats]:
    """Smallest and largest value of each slice along `axis` (`[n]`), of each block of `block_size` along it, or of the whole (`[]`, no axis).

    Example:
        >>> low, high = slice_extremes(np.float32([[1, 2, 3], [6, 5, 4]]), 1, block_size=2)
        >>> low.tolist(), high.tolist()
        ([[1.0, 3.0], [5.0, 4.0]], [[2.0, 3.0], [6.0, 4.0]])
    """
    if axis is None:
        return np.asarray(values.min()), np.asarray(values.max())
    if block_size:
        starts = np.arange(0, values.shape[axis], block_size)
        return np.minimum.reduceat(values, starts, axis=axis), np.maximum.reduceat(values, starts, axis=axis)
    others = tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    return values.min(axis=others), values.max(axis=others)
