"""Whether memory is flat under load, with a bound that follows from how the allocator gives memory back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quant.validation.fresh import TRIM_BYTES

_FEWEST = 6


@dataclass(frozen=True)
class Growth:
    """How memory went on once the load had settled.

    Args:
        grown: Bytes between the middle of the second third of the time and that of the last, by the median of each.
        seconds: Between the two middles.
        allowed: Bytes that may be held more at the one time than at the other though nothing is lost.
    """

    grown: float
    seconds: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        """Whether what is held more can be explained without a leak."""
        return self.grown <= self.allowed

    @property
    def slope(self) -> float:
        """Bytes a second."""
        return self.grown / self.seconds


def growth(rss: Sequence[tuple[float, int]], *, threads: int) -> Growth | None:
    """How resident memory went on; None with too few readings, or where the system tells none.

    The first third is left out: buffers and arenas are made in it. The bound: in a process of which glibc gives back what is free above
    `TRIM_BYTES` at the end of each arena, an arena may hold up to that much, and the one block that is being worked on, of up to as much again
    (larger ones are mapped and go back at once). There is one arena for each thread and the main one.

    Args:
        rss: (second, resident bytes).
        threads: How many asked at once.

    Example:
        >>> leak = growth([(t / 10, 10_000_000 + 1_000_000 * t) for t in range(31)], threads=4)
        >>> leak.is_flat, round(leak.slope), leak.allowed
        (False, 10000000, 1310720)
    """
    readings = np.asarray(rss, np.float64)
    if len(readings) < _FEWEST or not readings[:, 1].any():
        return None
    third = readings[-1, 0] / 3
    middle, last = (readings[(readings[:, 0] >= start) & (readings[:, 0] <= start + third)] for start in (third, 2 * third))
    if not len(middle) or not len(last):
        return None
    grown = float(np.median(last[:, 1]) - np.median(middle[:, 1]))
    return Growth(grown, float(np.median(last[:, 0]) - np.median(middle[:, 0])), (threads + 1) * 2 * TRIM_BYTES)
