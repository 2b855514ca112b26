"""What one streaming pass keeps of a tensor: extremes, and a histogram that merges exactly.

A bin is the top 18 bits of a float32 (sign, exponent, 9 bits of mantissa): 512 bins to the octave, so a bin is never wider
than 1/512 of the values in it. Such a histogram needs no range in advance, is never re-binned, and adds up exactly: parts
that are merged, in any order and on any machine, give the very counts of one pass. Its size is bounded by the octaves that
occur, not by the number of values. NaN and infinities fall into bins of their own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.int64]

_SHIFT = 14
_NEGATIVE = 1 << (31 - _SHIFT)
_NOT_FINITE = 0xFF << (23 - _SHIFT)
RELATIVE_BIN_WIDTH = 2.0**-9
"""No bin is wider than this share of the smallest magnitude in it (denormals aside)."""


@dataclass(frozen=True)
class TensorStatistics:
    """What was seen of one tensor: `count` values between `minimum` and `maximum`, and their histogram.

    Args:
        count: Number of finite values seen.
        minimum: Smallest finite value, exact; 0.0 when nothing was seen.
        maximum: Largest finite value, exact; 0.0 when nothing was seen.
        codes: int64 `[bins]`, the bins that occur, ascending by code. Empty when only extremes were asked for.
        counts: int64 `[bins]`, values in each of them.
        not_finite: Number of NaN and infinities seen.
    """

    count: int = 0
    minimum: float = 0.0
    maximum: float = 0.0
    codes: Codes = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Codes = field(default_factory=lambda: np.zeros(0, np.int64))
    not_finite: int = 0

    @classmethod
    def of(cls, values: Floats, *, histogram: bool = True) -> TensorStatistics:
        """The statistics of `values` (any shape; taken as float32).

        Example:
            >>> s = TensorStatistics.of(np.float32([-1, 0, 0, 3]))
            >>> s.count, s.minimum, s.maximum, s.counts.tolist()
            (4, -1.0, 3.0, [2, 1, 1])
        """
        flat = _flat(values)
        if flat.size == 0:
            return cls()
        low, high = float(flat.min()) + 0.0, float(flat.max()) + 0.0  # -0.0 is zero
        if not np.isfinite(low) or not np.isfinite(high):
            finite = flat[np.isfinite(flat)]
            part = cls.of(finite, histogram=histogram)
            return cls(part.count, part.minimum, part.maximum, part.codes, part.counts, flat.size - finite.size)
        if not histogram:
            return cls(flat.size, low, high)
        return cls(flat.size, low, high, *_histogram(flat.view(np.uint32) >> np.uint32(_SHIFT)))

    def merge(self, other: TensorStatistics) -> TensorStatistics:
        """The statistics of both parts together; exact and in any order the same."""
        if self.count == 0 or other.count == 0:
            kept = other if self.count == 0 else self
            return TensorStatistics(kept.count, kept.minimum, kept.maximum, kept.codes, kept.counts, self.not_finite + other.not_finite)
        bins = _add_bins((self.codes, self.counts), (other.codes, other.counts))
        extremes = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        return TensorStatistics(self.count + other.count, *extremes, *bins, self.not_finite + other.not_finite)

    @property
    def magnitude(self) -> float:
        """Largest absolute value seen."""
        return max(abs(self.minimum), abs(self.maximum))

    @cached_property
    def bins(self) -> Bins:
        """The histogram as value intervals in ascending order, cut to the exact extremes."""
        magnitude = self.codes & (_NEGATIVE - 1)
        negative = self.codes >= _NEGATIVE
        inner = (magnitude.astype(np.uint32) << _SHIFT).view(np.float32).astype(np.float64)
        outer = ((magnitude + 1).astype(np.uint32) << _SHIFT).view(np.float32).astype(np.float64)
        low, high = np.where(negative, -outer, inner), np.where(negative, -inner, outer)
        order = np.argsort(low, kind="stable")
        low, high = np.clip(low[order], self.minimum, self.maximum), np.clip(high[order], self.minimum, self.maximum)
        return Bins(low, high, self.counts[order])

    @property
    def mean(self) -> float:
        """Mean, taken over bin centres: within 1/1024 of the mean magnitude."""
        return float(np.sum(self.bins.centers * self.bins.counts) / max(self.count, 1))

    @property
    def mean_magnitude(self) -> float:
        """Mean absolute value, taken over bin centres: within 1/1024 of the truth."""
        return float(np.sum(np.abs(self.bins.centers) * self.bins.counts) / max(self.count, 1))

    @property
    def rms(self) -> float:
        """Root mean square, taken over bin centres: within 1/1024 of the truth."""
        return float(np.sqrt(np.sum(np.square(self.bins.centers) * self.bins.counts) / max(self.count, 1)))


@dataclass(frozen=True)
class Bins:
    """A histogram as intervals: `counts[i]` values lie in `[low[i], high[i]]`; ascending, float64, never overlapping."""

    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    counts: Codes

    @property
    def centers(self) -> npt.NDArray[np.float64]:
        """The middle of each interval."""
        return (self.low + self.high) / 2

    def quantile(self, share: float) -> float:
        """The value below which `share` (0..1) of the counted values lie; within one bin's width of the truth."""
        total = int(self.counts.sum())
        reached = np.cumsum(self.counts)
        at = min(int(np.searchsorted(reached, share * total)), self.counts.size - 1)
        before = float(reached[at] - self.counts[at])
        inside = (share * total - before) / float(self.counts[at])
        return float(self.low[at] + (self.high[at] - self.low[at]) * min(max(inside, 0.0), 1.0))


class Collector:
    """Gathers a tensor's statistics over many small arrays; safe to share between threads.

    Bin codes wait in a buffer of at most `pending` values, so that short arrays do not each pay for a histogram.

    Example:
        >>> collector = Collector()
        >>> for part in (np.float32([1, 2]), np.float32([3])):
        ...     collector.add(part)
        >>> collector.result().count
        3
    """

    def __init__(self, *, pending: int = 1 << 20) -> None:
        self._lock = threading.Lock()
        self._limit = pending
        self._waiting: list[npt.NDArray[np.uint32]] = []
        self._size = 0
        self._total = TensorStatistics()

    def add(self, values: Floats) -> None:
        """Take in the values of one array (any shape; taken as float32)."""
        flat = _flat(values)
        if flat.size == 0:
            return
        extremes = TensorStatistics.of(flat, histogram=False)
        codes = flat.view(np.uint32) >> np.uint32(_SHIFT)
        with self._lock:
            self._total = self._total.merge(extremes)
            self._waiting.append(codes)
            self._size += codes.size
            if self._size >= self._limit:
                self._flush()

    def _flush(self) -> None:
        codes = np.concatenate(self._waiting) if self._waiting else np.zeros(0, np.uint32)
        self._waiting, self._size = [], 0
        histogram = _histogram(codes)
        total = self._total
        merged = _add_bins((total.codes, total.counts), histogram)
        self._total = TensorStatistics(total.count, total.minimum, total.maximum, *merged, total.not_finite)

    def result(self) -> TensorStatistics:
        """The statistics of everything taken in so far."""
        with self._lock:
            self._flush()
            return self._total


def _flat(values: Floats) -> npt.NDArray[np.float32]:
    """`values` in one row as float32; those beyond its range become infinite, and count as such."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32).reshape(-1)


def _histogram(codes: npt.NDArray[np.uint32]) -> tuple[Codes, Codes]:
    """Bins that occur among `codes`, and how often; -0.0 is zero, and what is not finite is left out."""
    dense = np.bincount(codes.astype(np.intp))
    if dense.size > _NEGATIVE:
        dense[0] += dense[_NEGATIVE]
        dense[_NEGATIVE] = 0
        dense[_NEGATIVE + _NOT_FINITE :] = 0
    dense[_NOT_FINITE:_NEGATIVE] = 0
    found = np.flatnonzero(dense)
    return found, dense[found]


def _add_bins(left: tuple[Codes, Codes], right: tuple[Codes, Codes]) -> tuple[Codes, Codes]:
    codes = np.union1d(left[0], right[0])
    counts = np.zeros(codes.size, np.int64)
    for part_codes, part_counts in (left, right):
        counts[np.searchsorted(codes, part_codes)] += part_counts
    return codes, counts
