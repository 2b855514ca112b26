"""Floating-point formats: rounding to a few bits of mantissa, with a scale (`FloatGrid`) or without one (`Plain`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from quant.core.formats.encoding import Encoding, encoding_of
from quant.core.formats.fake import straight_through
from quant.core.formats.grid import Grid
from quant.core.formats.params import Codes
from quant.core.statistics import Floats

if TYPE_CHECKING:
    import torch


def round_mantissa(values: Floats, mantissa: int, least_exponent: int) -> Floats:
    """The nearest values with `mantissa` bits behind the leading one, ties to even; exact in any floating-point type wider than that.

    Below `2 ** least_exponent` values are evenly spaced (denormals). There is no largest value; NaN and infinities stay.

    Example:
        >>> round_mantissa(np.array([17.0, 19.0, 500.0, 0.001]), 3, -6).tolist()
        [16.0, 20.0, 512.0, 0.001953125]
    """
    exponent = np.maximum(np.frexp(values)[1] - 1, least_exponent) - mantissa
    rounded: Floats = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent)
    return rounded


@dataclass(frozen=True)
class FloatGrid(Grid):
    """A floating-point format read with a scale: its steps are a share of the value, and even only next to zero.

    Args:
        mantissa: Bits of mantissa behind the leading one.
        least_exponent: Exponent of the smallest normal value.
    """

    mantissa: int
    least_exponent: int
    has_nan: ClassVar[bool] = True

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the codes."""
        kind: np.dtype[Any] = np.dtype(ml_dtypes.float8_e4m3fn)
        return kind

    def round(self, steps: Floats) -> Floats:
        """The nearest values that codes can have, were there no lowest and no highest; ties to even."""
        return round_mantissa(steps, self.mantissa, self.least_exponent)

    def gaps(self, steps: Floats) -> Floats:
        """Distance between the values next below and next above each of `steps`."""
        exponent = np.maximum(np.frexp(steps)[1] - 1, self.least_exponent) - self.mantissa
        gaps: Floats = np.ldexp(np.ones_like(steps), exponent)
        return gaps

    def round_tensor(self, steps: torch.Tensor) -> torch.Tensor:
        """As `round`, of a tensor whose values lie between `low` and `high`."""
        import torch  # noqa: PLC0415 - heavy

        largest = int(self.high).bit_length() - 1
        # Looked up, not computed: powers that torch computes need not be exact.
        units = torch.tensor([2.0 ** (e - self.mantissa) for e in range(self.least_exponent, largest + 1)], dtype=steps.dtype, device=steps.device)
        unit = units[(torch.frexp(steps.detach()).exponent.long() - 1).clamp(self.least_exponent, largest) - self.least_exponent]
        return (steps / unit).round() * unit

    @cached_property
    def levels(self) -> npt.NDArray[np.float64]:
        """Every value from 0 to `high` that a code stands for, ascending."""
        values: npt.NDArray[np.float64] = np.arange(128, dtype=np.uint8).view(self.dtype).astype(np.float64)
        return values[values <= self.high]

    @cached_property
    def _cubes(self) -> npt.NDArray[np.float64]:
        sums: npt.NDArray[np.float64] = np.append(0.0, np.cumsum(np.diff(self.levels) ** 3))
        return sums

    def gaps_cubed(self, levels: Floats) -> Floats:
        """Sum of the cubes of the gaps between neighbouring values from 0 up to each of `levels`; negative below 0."""
        codes = np.abs(levels).astype(self.dtype).view(np.uint8)
        sums: Floats = np.copysign(self._cubes[codes], levels)
        return sums

    @property
    def cuts(self) -> npt.NDArray[np.float64]:
        """Where one code ends and the next begins, from 0 to `high`, as shares of it."""
        middles = (self.levels[:-1] + self.levels[1:]) / 2
        cuts: npt.NDArray[np.float64] = np.concatenate([[0.0], middles, [self.levels[-1]]]) / self.levels[-1]
        return cuts


@dataclass(frozen=True)
class Plain:
    """A floating-point format that needs no scale: values are rounded to it as they are, and overflow to infinity.

    Args:
        name: As plans call it.
        dtype: The NumPy type of its values.
    """

    name: str
    dtype: np.dtype[Any]

    @property
    def encoding(self) -> Encoding:
        """How ONNX writes the values."""
        return encoding_of(self.dtype)

    def encode(self, values: Floats) -> Codes:
        """The nearest values of this format; ties to even, as ONNX `Cast`."""
        with np.errstate(over="ignore", invalid="ignore"):
            if self.dtype == np.dtype(ml_dtypes.bfloat16):  # NumPy would round float64 twice, by way of float32
                values = round_mantissa(values, 7, -126)
            return values.astype(self.dtype)

    def decode(self, codes: Codes) -> npt.NDArray[np.float32]:
        """The values as float32."""
        with np.errstate(invalid="ignore"):  # a NaN that signals
            return codes.astype(np.float32)

    def fake(self, values: torch.Tensor) -> torch.Tensor:
        """`values` rounded to this format, in their own type; gradients pass as if nothing were rounded."""
        import torch  # noqa: PLC0415 - heavy

        kind = getattr(torch, self.dtype.name)
        return straight_through(values, values.detach().to(kind).to(values.dtype))
