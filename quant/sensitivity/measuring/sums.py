"""Means of samples, as shares of the mean of something else, with standard errors; memory does not grow with samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
BEYOND = 1e12
"""Stands for an error that is not finite."""


class Shares:
    """A weighted mean of ratios, sum of errors / sum of signals, of several outputs, over samples.

    Args:
        weights: Weight of each output; they are taken as shares of their sum.

    Example:
        >>> one = Shares([1.0])
        >>> one.add(np.array([[1.0], [3.0]]), np.array([[10.0], [10.0]]))
        >>> value, error = one.value()
        >>> round(value, 3), round(error, 3)
        (0.2, 0.1)
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = np.asarray(weights, np.float64) / float(np.sum(weights))
        width = 2 * len(self._weights)
        self._sum, self._products, self.count = np.zeros(width), np.zeros((width, width)), 0

    def add(self, errors: Doubles, signals: Doubles) -> None:
        """Add samples: errors and signals, `[samples, outputs]` each."""
        rows = np.concatenate([np.nan_to_num(np.minimum(errors, BEYOND), nan=BEYOND), signals], axis=1)
        self._sum += rows.sum(axis=0)
        self._products += (rows[:, :, None] * rows[:, None, :]).sum(axis=0)
        self.count += len(rows)

    @property
    def reference(self) -> float:
        """Weighted mean of the signals of a sample."""
        half = len(self._weights)
        return float((self._weights * self._sum[half:]).sum() / max(self.count, 1))

    def value(self) -> tuple[float, float]:
        """(value, standard error); the error of one sample alone is the value, for nothing is known of how samples differ."""
        half = len(self._weights)
        errors, signals = self._sum[:half], np.where(self._sum[half:] > 0, self._sum[half:], 1.0)
        shares = np.where(self._sum[half:] > 0, errors / signals, np.where(errors > 0, BEYOND, 0.0))
        value = float(min((self._weights * shares).sum(), BEYOND))
        if self.count <= 1:
            return value, value
        slopes = np.concatenate([self._weights / signals, -self._weights * shares / signals])
        spread = float(slopes @ self._products @ slopes)
        return value, math.sqrt(max(spread, 0.0) * self.count / (self.count - 1))


class ManyShares:
    """As `Shares`, of one output, for many effects at once.

    Args:
        size: Number of effects.

    Example:
        >>> two = ManyShares(2)
        >>> two.add(slice(0, 2), np.array([[1.0, 3.0], [0.0, 0.0]]), np.array([10.0, 10.0]))
        >>> [tuple(round(x, 3) for x in pair) for pair in two.values()]
        [(0.2, 0.1), (0.0, 0.0)]
    """

    def __init__(self, size: int) -> None:
        self._sums = np.zeros((6, size))

    def add(self, which: slice | Sequence[int], errors: Doubles, signals: Doubles) -> None:
        """Add samples: errors `[effects, samples]` of the effects at the places `which`, and signals `[samples]`."""
        q = np.nan_to_num(np.minimum(errors, BEYOND), nan=BEYOND)
        rows = (q.sum(axis=1), np.square(q).sum(axis=1), q @ signals, signals.sum(), np.square(signals).sum(), signals.size)
        for total, row in zip(self._sums, rows, strict=True):
            total[which] += row

    def values(self) -> list[tuple[float, float]]:
        """(value, standard error) of each."""
        found = []
        for q, qq, qp, p, pp, count in self._sums.T:
            value = min(q / p, BEYOND) if p > 0 else BEYOND if q > 0 else 0.0
            spread = max(qq - 2 * value * qp + value * value * pp, 0.0)
            found.append((float(value), float(value if count <= 1 or p <= 0 else math.sqrt(spread * count / (count - 1)) / p)))
        return found
