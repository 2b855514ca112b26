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
