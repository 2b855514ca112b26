"""Sums that do not depend on the order of what is added.

Floating-point addition is not associative, so a sum over batches that threads finish in any order would change in its last
bits from run to run. Here every number is cut into pieces of 31 bits at fixed places of the number line; pieces are whole
multiples of their place, and whole numbers add up exactly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

_BITS = 31
_TOP = 1023 - _BITS
_PLACES = np.exp2(np.arange(_TOP, -400, -_BITS, dtype=np.float64))
"""Value of one unit at each place, descending; what is below 2^-400 counts as nothing."""


class ExactSum:
    """The sum of arrays of one shape, the same whatever their order; of at most 2^31 of them.

    Args:
        size: Elements of each array.

    Example:
        >>> total = ExactSum(1)
        >>> for value in (1e300, 1.0, -1e300):
        ...     total.add(np.array([value]))
        >>> total.value().tolist()
        [1.0]
    """

    def __init__(self, size: int) -> None:
        self._units = np.zeros((len(_PLACES), size), np.int64)

    def add(self, values: Doubles) -> None:
        """Add finite float64 `values` `[size]`."""
        rest = np.array(values, np.float64)
        largest = float(np.max(np.abs(rest), initial=0.0))
        for place, unit in enumerate(_PLACES):
            if largest < unit:
                continue
            whole = np.trunc(rest / unit)
            self._units[place] += whole.astype(np.int64)
            rest -= whole * unit
            largest = float(np.max(np.abs(rest), initial=0.0))
            if largest == 0:
                return

    def value(self) -> Doubles:
        """The sum, float64 `[size]`, correct to a few units in its last place."""
        carried = self._units.copy()
        for place in range(len(_PLACES) - 1, 0, -1):
            # To the nearest, so that what is left is at most half a unit of the place above and cancels nothing of it.
            carry = (carried[place] + (1 << (_BITS - 1))) >> _BITS
            carried[place] -= carry << _BITS
            carried[place - 1] += carry
        total = np.zeros(carried.shape[1])
        for units, unit in zip(carried[::-1], _PLACES[::-1], strict=True):
            total += units * unit
        return total
