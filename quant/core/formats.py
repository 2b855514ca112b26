"""Integer formats and their arithmetic: the reference that everything else is held to.

With real value x, scale s, zero point z and integer q:  q = clip(rint(x / s) + z, low, high)  and  x' = (q - z) * s.
`rint` rounds ties to even; the division is done in the type of x, as ONNX `QuantizeLinear` defines it for float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quant.core.statistics import Floats

FORMATS = ("fp32", "fp16", "int8", "uint8")
"""Names of the number formats that plans may give to a layer."""

Integers = npt.NDArray[np.integer[Any]]


class Range(NamedTuple):
    """The real values that a format must be able to write: from `low` to `high`."""

    low: float
    high: float


@dataclass(frozen=True)
class Params:
    """Scale and zero point of a tensor, or of each slice of it.

    Args:
        scale: float32, `[]` per tensor, `[n]` per slice of an axis of length n; positive and finite.
        zero_point: integers of the codes' type, in the shape of `scale`.
    """

    scale: npt.NDArray[np.float32]
    zero_point: Integers


@dataclass(frozen=True)
class Grid:
    """An integer format: codes from `low` to `high`; `symmetric` keeps the zero point at 0.

    A symmetric signed grid gives up its lowest code for the *scale* (127 steps to each side), so that a value and its
    negative are equally far from their codes.
    """

    name: str
    low: int
    high: int
    symmetric: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the codes."""
        return np.dtype(np.int8 if self.low < 0 else np.uint8)

    @property
    def steps(self) -> int:
        """Number of steps between the lowest and the highest value that the scale is chosen for."""
        return 2 * self.high if self.symmetric and self.low < 0 else self.high - self.low

    def params(self, low: npt.ArrayLike, high: npt.ArrayLike) -> Params:
        """Scale and zero point for values between `low` and `high` (scalars, or `[n]` for n slices).

        The range is widened to hold 0, which every grid writes exactly. A range without extent (a constant or all-zero
        tensor) gets a positive finite scale.

        Example:
            >>> p = UINT8.params(-1.0, 3.0)
            >>> round(float(p.scale), 6), int(p.zero_point)
            (0.015686, 64)
        """
        bottom = np.minimum(np.asarray(low, np.float64), 0.0)
        top = np.maximum(np.asarray(high, np.float64), 0.0)
        extent = 2 * np.maximum(-bottom, top) if self.symmetric and self.low < 0 else top - bottom
        with np.errstate(under="ignore"):
            raw = (extent / self.steps).astype(np.float32)
        tiny = np.finfo(np.float32).tiny
        # A slice of zeros has no step of its own; 1 keeps its codes at zero and the file free of infinities.
        scale = np.where(raw >= tiny, raw, np.float32(1.0)).astype(np.float32)
        if self.symmetric:
            zero = np.zeros(scale.shape, self.dtype)
        else:
            zero = np.clip(np.rint(self.low - bottom / scale.astype(np.float64)), self.low, self.high).astype(self.dtype)
        return Params(scale, zero)

    def quantize(self, values: Floats, params: Params, axis: int | None = None) -> Integers:
        """The codes of `values`, in their shape; `axis` is the one that `params` has slices along.

        Raises:
            ValueError: `values` hold a NaN, which no integer can stand for.

        Example:
            >>> INT8.quantize(np.float32([0.5, 1.5, 2.5, -9999]), Params(np.float32(1), np.int8(0))).tolist()
            [0, 2, 2, -128]
        """
        if np.isnan(values).any():
            raise ValueError("a NaN has no integer code")
        scale, zero = _along(params, values.ndim, axis)
        kind = np.result_type(values.dtype, np.float32)  # half precision divides in float32: a small scale is 0 in float16
        with np.errstate(over="ignore"):
            steps: Floats = np.rint(values.astype(kind, copy=False) / scale.astype(kind))
        codes: Integers = np.clip(steps + zero, self.low, self.high).astype(self.dtype)
        return codes

    def dequantize(self, codes: Integers, params: Params, axis: int | None = None) -> npt.NDArray[np.float32]:
        """The real values that `codes` stand for, float32, in their shape; infinite where they are beyond float32.

        Example:
            >>> INT8.dequantize(np.int8([-1, 0, 2]), Params(np.float32(0.5), np.int8(0))).tolist()
            [-0.5, 0.0, 1.0]
        """
        scale, zero = _along(params, codes.ndim, axis)
        with np.errstate(over="ignore"):
            return ((codes.astype(np.int32) - zero) * scale).astype(np.float32)


def _along(params: Params, rank: int, axis: int | None) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Scale and zero point shaped to broadcast along `axis` of an array of `rank` axes."""
    scale, zero = np.asarray(params.scale), np.asarray(params.zero_point).astype(np.int32)
    if axis is None or scale.ndim == 0:
        return scale, zero
    shape = [1] * rank
    shape[axis] = -1
    return scale.reshape(shape), zero.reshape(shape)


INT8 = Grid("int8", -128, 127, symmetric=True)
UINT8 = Grid("uint8", 0, 255, symmetric=False)
GRIDS = {grid.name: grid for grid in (INT8, UINT8)}


def slice_extremes(values: Floats, axis: int | None) -> tuple[Floats, Floats]:
    """Smallest and largest value of each slice along `axis` (`[n]`), or of the whole (`[]`) when `axis` is None."""
    if axis is None:
        return np.asarray(values.min()), np.asarray(values.max())
    others = tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    return values.min(axis=others), values.max(axis=others)
