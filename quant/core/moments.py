"""Second moments of what a layer reads, E[x xᵀ], summed so that neither threads nor order change a bit of them.

Products of a batch are cut into pieces at fixed places of the number line, 31 bits apart, and whole pieces add up exactly. Only
the two highest places that occur are kept, so that what is cut off is below 2^-31 of the largest number in the batch.
"""

from __future__ import annotations

import math
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
_BITS = 31
_PLACES = 2
BYTES = 8 * _PLACES
"""What a `MomentSum` holds for each element of the upper triangle."""


class MomentSum:
    """The sum of x xᵀ over all vectors that are added, the same in whatever order; of at most 2^32 additions. Safe to share between threads.

    Args:
        size: Length of a vector.

    Example:
        >>> total = MomentSum(2)
        >>> total.add(np.float32([[1, 2], [3, 4]]))
        >>> unpacked(total.mean()).tolist()
        [[5.0, 7.0], [7.0, 10.0]]
    """

    def __init__(self, size: int) -> None:
        self._lock = Lock()
        self._size = size
        self._not_finite = 0
        self._top: int | None = None
        self._planes: dict[int, npt.NDArray[np.int64]] = {}
        self._count = 0

    def add(self, vectors: npt.NDArray[Any]) -> None:
        """Add the vectors along the last axis of `vectors`, `[..., size]`; a batch with a NaN or an infinity counts as not finite."""
        found, count = _products(vectors)
        with self._lock:
            if np.isfinite(found).all():
                self._count += count
                self._add(found)
            else:
                self._not_finite += 1

    @property
    def not_finite(self) -> int:
        """Batches that held a NaN or an infinity; they are not in the mean."""
        return self._not_finite

    @property
    def count(self) -> int:
        """Number of vectors in the mean."""
        return self._count

    def _add(self, found: Doubles) -> None:
        largest = float(np.max(np.abs(found), initial=0.0))
        if largest == 0.0:
            return
        place = (math.frexp(largest)[1] - 1) // _BITS
        self._top = place if self._top is None else max(place, self._top)
        rest = found.copy()
        for at in range(self._top, self._top - _PLACES, -1):
            unit = math.ldexp(1.0, _BITS * at)
            whole = np.trunc(rest / unit)
            rest -= whole * unit
            if at not in self._planes:
                self._planes[at] = np.zeros(found.size, np.int64)
            self._planes[at] += whole.astype(np.int64)
        self._planes = {at: plane for at, plane in self._planes.items() if at > self._top - _PLACES}

    def mean(self) -> Doubles:
        """The mean of x xᵀ, its upper triangle row by row (see `unpacked`); zeros when nothing was added."""
        total = np.zeros(self._size * (self._size + 1) // 2)
        for at in sorted(self._planes):
            total += self._planes[at] * math.ldexp(1.0, _BITS * at)
        return total / max(self._count, 1)


def _products(vectors: npt.NDArray[Any]) -> tuple[Doubles, int]:
    """The sum of x xᵀ over the vectors `[..., size]` of one batch, its upper triangle row by row, and the number of vectors."""
    rows = vectors.reshape(-1, vectors.shape[-1]).astype(np.float64)
    whole = rows.T @ rows
    return whole[_upper(len(whole))], len(rows)


@cache
def _upper(size: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    rows, columns = np.triu_indices(size)
    return rows, columns


def unpacked(packed: Doubles) -> Doubles:
    """The symmetric matrix `[size, size]` of an upper triangle that is given row by row.

    Example:
        >>> unpacked(np.array([1.0, 2.0, 3.0])).tolist()
        [[1.0, 2.0], [2.0, 3.0]]
    """
    size = (math.isqrt(8 * packed.size + 1) - 1) // 2
    whole = np.zeros((size, size))
    whole[_upper(size)] = packed
    return whole + np.triu(whole, 1).T
