"""What one streaming pass keeps of a tensor: extremes, and a histogram that merges exactly.

A bin is the top 18 bits of a float32 (sign, exponent, 9 bits of mantissa): 512 bins to the octave, so a bin is never wider
than 1/512 of the values in it. Such a histogram needs no range in advance, is never re-binned, and adds up exactly: parts
that are merged, in any order and on any machine, give the very counts of one pass. Its size is bounded by the octaves that
occur, not by the number of values. NaN and infinities fall into bins of their own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.int64]

_SHIFT = 14
_NEGATIVE = 1 << (31 - _SHIFT)
_NOT_FINITE = 0xFF << (23 - _SHIFT)
_BINS = 2 * _NEGATIVE
DENSE_BYTES = 4 * _BINS
"""What a dense `Collector` holds."""
_CHUNK = 1 << 19
"""Values that are counted in one go: their codes fit into a processor's cache."""
_FEW = 1 << 13
"""Below this, sorting codes is cheaper than counting them."""
_LONG = 1 << 16
"""From here on, an array is worth a count of its own."""
_INT32_MAX = 2**31 - 1
_NONE = np.zeros(0, np.int64)
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
        return cls(flat.size, low, high, *_histogram(_codes(flat)))

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
    """Gathers a tensor's statistics over many arrays; safe to share between threads.

    Short arrays wait in a buffer of at most `pending` values, so that each does not pay for a histogram.

    Args:
        pending: Values that may wait (4 bytes each).
        dense: Keep a count for every bin there could be (1 MiB), which is fastest to add to; else only for bins that occur.

    Example:
        >>> collector = Collector()
        >>> for part in (np.float32([1, 2]), np.float32([3])):
        ...     collector.add(part)
        >>> collector.result().count
        3
    """

    def __init__(self, *, pending: int = 1 << 20, dense: bool = False) -> None:
        self._lock = threading.Lock()
        self._limit = pending
        self._waiting: list[npt.NDArray[np.uint32]] = []
        self._size = 0
        self._total = TensorStatistics()
        self._dense = np.zeros(_BINS, np.int32) if dense else None
        self._in_dense = 0

    def add(self, values: Floats) -> None:
        """Take in the values of one array (any shape; taken as float32)."""
        flat = _flat(values)
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            extremes = TensorStatistics.of(part, histogram=False)
            if part.size >= _LONG:
                counts = _dense_counts(_codes(part, _scratch()))
                with self._lock:
                    self._total = _with_extremes(self._total, extremes)
                    self._take(counts, part.size)
                continue
            codes = _codes(part)
            with self._lock:
                self._total = _with_extremes(self._total, extremes)
                self._waiting.append(codes)
                self._size += codes.size
                if self._size >= self._limit:
                    self._flush()

    def _flush(self) -> None:
        codes = np.concatenate(self._waiting) if self._waiting else np.zeros(0, np.uint32)
        self._waiting, self._size = [], 0
        for start in range(0, codes.size, _CHUNK):
            part = codes[start : start + _CHUNK]
            if self._dense is None and part.size < _LONG:
                self._keep(_histogram(part))
            else:
                self._take(_dense_counts(part), part.size)

    def _take(self, counts: npt.NDArray[np.int32], size: int) -> None:
        """Add dense counts of `size` values."""
        if self._dense is None:
            self._keep(_occupied(counts))
            return
        if self._in_dense + size > _INT32_MAX:
            self._spill(self._dense)
        self._dense += counts
        self._in_dense += size

    def _keep(self, bins: tuple[Codes, Codes]) -> None:
        codes, counts = _add_bins((self._total.codes, self._total.counts), bins)
        self._total = replace(self._total, codes=codes, counts=counts)

    def _spill(self, dense: npt.NDArray[np.int32]) -> None:
        """Move the dense counts into the total, where they have 64 bits."""
        self._keep(_occupied(dense))
        dense[:] = 0
        self._in_dense = 0

    def result(self) -> TensorStatistics:
        """The statistics of everything taken in so far."""
        with self._lock:
            self._flush()
            if self._dense is not None:
                self._spill(self._dense)
            return self._total


def _with_extremes(total: TensorStatistics, part: TensorStatistics) -> TensorStatistics:
    """`total` with the count and the extremes of `part` added; its histogram stays."""
    found = replace(total, codes=_NONE, counts=_NONE).merge(part)
    return replace(found, codes=total.codes, counts=total.counts)


def _flat(values: Floats) -> npt.NDArray[np.float32]:
    """`values` in one row as float32; those beyond its range become infinite, and count as such."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32).reshape(-1)


def _codes(flat: npt.NDArray[np.float32], out: npt.NDArray[np.uint32] | None = None) -> npt.NDArray[np.uint32]:
    return np.right_shift(flat.view(np.uint32), np.uint32(_SHIFT), out=None if out is None else out[: flat.size])


_local = threading.local()


def _scratch() -> npt.NDArray[np.uint32]:
    """Room for the codes of one chunk, one for each thread: fresh memory for every chunk would cost more than counting it."""
    if not hasattr(_local, "codes"):
        _local.codes = np.empty(_CHUNK, np.uint32)
    room: npt.NDArray[np.uint32] = _local.codes
    return room


def _histogram(codes: npt.NDArray[np.uint32]) -> tuple[Codes, Codes]:
    """Bins that occur among `codes`, and how often; -0.0 is zero, and what is not finite is left out."""
    if codes.size >= _FEW:
        dense = np.zeros(_BINS, np.int64)
        for start in range(0, codes.size, _CHUNK):
            dense += _dense_counts(codes[start : start + _CHUNK])
        return _occupied(dense)
    found, counts = np.unique(codes, return_counts=True)
    bins = found.astype(np.int64), counts.astype(np.int64)
    finite = (bins[0] & (_NEGATIVE - 1)) < _NOT_FINITE
    zero = bins[0] == _NEGATIVE
    rest = bins[0][finite & ~zero], bins[1][finite & ~zero]
    return _add_bins(rest, (np.zeros(1, np.int64), bins[1][zero])) if zero.any() else rest


@cache
def _ones() -> npt.NDArray[np.int32]:
    return np.ones(_CHUNK, np.int32)


def _dense_counts(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """How often each of all possible bins occurs among at most `_CHUNK` codes, int32 `[_BINS]`.

    A sparse row with repeated entries, made dense, adds them up. It takes 32-bit codes as they are, where `np.bincount` widens
    them to 64 bits and looks for their extremes first: that takes three times as long.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415 - heavy

    ends = np.array([0, codes.size], np.int32)
    row = csr_array((_ones()[: codes.size], codes.view(np.int32), ends), shape=(1, _BINS))
    counts: npt.NDArray[np.int32] = row.toarray()[0]
    return counts


def _occupied(dense: npt.NDArray[np.int32] | Codes) -> tuple[Codes, Codes]:
    """The bins of `dense` (which is changed) that hold finite values, and their counts; -0.0 is zero."""
    dense[0] += dense[_NEGATIVE]
    dense[_NEGATIVE] = 0
    dense[_NOT_FINITE:_NEGATIVE] = 0
    dense[_NEGATIVE + _NOT_FINITE :] = 0
    found = np.flatnonzero(dense)
    return found, dense[found].astype(np.int64)


def _add_bins(left: tuple[Codes, Codes], right: tuple[Codes, Codes]) -> tuple[Codes, Codes]:
    if not left[0].size or not right[0].size:
        return left if left[0].size else right
    codes = np.union1d(left[0], right[0])
    counts = np.zeros(codes.size, np.int64)
    for part_codes, part_counts in (left, right):
        counts[np.searchsorted(codes, part_codes)] += part_counts
    return codes, counts
