"""Grids: formats whose codes are read with a scale. This is the reference that everything else is held to.

With real value x, scale s, zero point z and code q:  q = clip(round(x / s) + z, low, high)  and  x' = (q - z) * s.
`round` gives the nearest value that a code can have, ties to even; the division is done in the type of x, as ONNX
`QuantizeLinear` defines it for float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from quant.core.formats.encoding import Encoding, encoding_of
from quant.core.formats.fake import fake_quantize
from quant.core.formats.params import Codes, Params, spread_out
from quant.core.statistics import Floats

if TYPE_CHECKING:
    import torch

_NIBBLE, _SIGNED_NIBBLE = 15, 7
_ON_GRID = 1e-4
"""Gaps within which a value lies on the grid already: float32 tells 127 steps apart to 1e-5."""


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
    has_nan: ClassVar[bool] = False
    """Whether a code stands for NaN."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the codes, the narrowest there is."""
        if self.low < 0:
            return np.dtype(ml_dtypes.int4 if self.high <= _SIGNED_NIBBLE else np.int8)
        return np.dtype(ml_dtypes.uint4 if self.high <= _NIBBLE else np.uint8)

    @property
    def encoding(self) -> Encoding:
        """How ONNX writes the codes."""
        return encoding_of(self.dtype)

    @property
    def steps(self) -> int:
        """Number of steps between the lowest and the highest value that the scale is chosen for."""
        return 2 * self.high if self.symmetric and self.low < 0 else self.high - self.low

    def params(self, low: npt.ArrayLike, high: npt.ArrayLike) -> Params:
        """Scale and zero point for values between `low` and `high` (scalars, or arrays in the shape that `Params` tells of).

        The range is widened to hold 0, which every grid writes exactly. A range without extent (a constant or all-zero
        tensor) gets a positive finite scale.

        Example:
            >>> p = Grid("uint8", 0, 255, symmetric=False).params(-1.0, 3.0)
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

    def round(self, steps: Floats) -> Floats:
        """The nearest values that codes can have, were there no lowest and no highest; ties to even."""
        rounded: Floats = np.rint(steps)
        return rounded

    def gaps(self, steps: Floats) -> Floats:
        """Distance between the values next below and next above each of `steps`."""
        return np.ones_like(steps)

    def around(self, steps: Floats) -> tuple[Floats, Floats]:
        """The values that codes can have next below and above each of `steps` (between `low` and `high`); alike where it is one itself.

        Example:
            >>> [part.tolist() for part in Grid("int8", -128, 127, symmetric=True).around(np.array([0.3, -1.7, 5.0]))]
            [[0.0, -2.0, 5.0], [1.0, -1.0, 5.0]]
        """
        gaps = self.gaps(steps)
        counted = steps / gaps
        near = np.rint(counted)
        on_it = np.abs(counted - near) < _ON_GRID
        below, above = (np.where(on_it, near, turned(counted)) * gaps for turned in (np.floor, np.ceil))
        return np.maximum(below, self.low), np.minimum(above, self.high)

    def round_tensor(self, steps: torch.Tensor) -> torch.Tensor:
        """As `round`, of a tensor whose values lie between `low` and `high`."""
        return steps.round()

    def gaps_cubed(self, levels: Floats) -> Floats:
        """Sum of the cubes of the gaps between neighbouring values from 0 up to each of `levels`; negative below 0.

        A twelfth of it is the integral of the squared rounding error from 0 to there. Codes of an integer format are 1 apart.
        """
        return levels

    @property
    def cuts(self) -> npt.NDArray[np.float64]:
        """Where one code ends and the next begins, as shares of the way from the lowest value to the highest (from 0, if symmetric)."""
        levels = (self.steps // 2 if self.symmetric else self.steps) + 1
        return np.arange(levels + 1) / levels

    def quantize(self, values: Floats, params: Params, axis: int | None = None, *, block_size: int = 0) -> Codes:
        """The codes of `values`, in their shape.

        Args:
            values: What to write, any shape.
            params: For the whole, for each slice along `axis`, or for each block of `block_size` along it.
            axis: The axis that `params` has slices or blocks along.
            block_size: Values to a block; 0 when there are none.

        Raises:
            ValueError: `values` hold a NaN and no code stands for it, or `params` do not fit.

        Example:
            >>> grid = Grid("int8", -128, 127, symmetric=True)
            >>> grid.quantize(np.float32([0.5, 1.5, 2.5, -9999]), Params(np.float32(1), np.int8(0))).tolist()
            [0, 2, 2, -128]
        """
        if not self.has_nan and np.isnan(values).any():
            raise ValueError("a NaN has no integer code")
        scale, zero = self._along(params, values.shape, axis, block_size)
        kind = np.result_type(values.dtype, np.float32)  # half precision divides in float32: a small scale is 0 in float16
        with np.errstate(over="ignore"):
            steps = self.round(values.astype(kind, copy=False) / scale.astype(kind))
        if not self.has_nan:  # floating point has no use for a zero point, and a zero of either sign, which adding one would take away
            steps = steps + zero.astype(kind)
        codes: Codes = np.clip(steps, self.low, self.high).astype(self.dtype)
        return codes

    def dequantize(self, codes: Codes, params: Params, axis: int | None = None, *, block_size: int = 0) -> npt.NDArray[np.float32]:
        """The real values that `codes` stand for, float32, in their shape; infinite where they are beyond float32.

        Example:
            >>> grid = Grid("int8", -128, 127, symmetric=True)
            >>> grid.dequantize(np.int8([-1, 0, 2]), Params(np.float32(0.5), np.int8(0))).tolist()
            [-0.5, 0.0, 1.0]
        """
        scale, zero = self._along(params, codes.shape, axis, block_size)
        with np.errstate(over="ignore"):
            return ((codes.astype(np.float64) - zero) * scale).astype(np.float32)

    def encode(self, values: Floats) -> Codes:
        """The codes of `values` at scale 1 and zero point 0."""
        return self.quantize(values, Params(np.asarray(np.float32(1)), np.zeros((), self.dtype)))

    def decode(self, codes: Codes) -> npt.NDArray[np.float32]:
        """What `codes` stand for at scale 1 and zero point 0."""
        return codes.astype(np.float32)

    def fake(self, values: torch.Tensor) -> torch.Tensor:
        """`values` encoded and decoded; gradients pass where they are not clipped."""
        return fake_quantize(values, self, values.new_ones(()))

    @staticmethod
    def _along(params: Params, shape: tuple[int, ...], axis: int | None, block_size: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        """Scale and zero point so that they broadcast against an array of `shape`."""
        scale, zero = np.asarray(params.scale), np.asarray(params.zero_point).astype(np.float64)
        return spread_out(scale, shape, axis, block_size), spread_out(zero, shape, axis, block_size)
