"""What calibrators share of reading statistics: checks, folding at zero, cutting a range, and coarser cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.formats import Grid, Range
from quant.core.statistics import Bins, TensorStatistics
from quant.errors import CalibrationError

Doubles = npt.NDArray[np.float64]

_SIGN = 1 << 17
"""The sign's bit in a bin's code (codes are the top 18 bits of a float32)."""


def require_values(statistics: TensorStatistics) -> None:
    """Accept statistics that saw at least one finite value.

    Raises:
        CalibrationError: Nothing was seen, or nothing finite.
    """
    if statistics.count:
        return
    if statistics.not_finite:
        raise CalibrationError(
            f"no finite value was seen, only {statistics.not_finite} NaN or infinite ones",
            hint="run the FP32 model on the calibration samples and look for the first layer that is not finite",
        )
    raise CalibrationError("no values were seen", hint="give at least one calibration sample that reaches this tensor")


def require_histogram(statistics: TensorStatistics) -> None:
    """Accept statistics whose histogram holds every value.

    Raises:
        CalibrationError: Nothing finite was seen, or only extremes were kept.
    """
    require_values(statistics)
    kept = int(statistics.counts.sum())
    if kept != statistics.count:
        raise CalibrationError(
            f"the histogram holds {kept} of {statistics.count} values",
            hint="collect the statistics with histograms, or choose the calibrator 'minmax', which needs none",
        )


def is_one_sided(statistics: TensorStatistics, grid: Grid) -> bool:
    """Whether one threshold describes every range: the grid is symmetric, or all values are on one side of zero."""
    return grid.symmetric or statistics.minimum >= 0 or statistics.maximum <= 0


def folded(statistics: TensorStatistics) -> TensorStatistics:
    """The statistics of absolute values, exact in their counts.

    Example:
        >>> s = folded(TensorStatistics.of(np.float32([-4, -1, 0.5, 1])))
        >>> s.count, s.maximum, s.counts.tolist()
        (4, 4.0, [1, 2, 1])
    """
    codes, place = np.unique(statistics.codes & (_SIGN - 1), return_inverse=True)
    counts = np.zeros(codes.size, np.int64)
    np.add.at(counts, place, statistics.counts)
    smallest = max(statistics.minimum, -statistics.maximum, 0.0)
    return replace(statistics, minimum=smallest, maximum=statistics.magnitude, codes=codes, counts=counts)


def cut(statistics: TensorStatistics, low: float, high: float) -> Range:
    """`low` to `high`, brought inside the extremes that were seen.

    Example:
        >>> cut(TensorStatistics.of(np.float32([0, 3])), -2.0, 2.0)
        Range(low=0.0, high=2.0)
    """
    bottom, top = statistics.minimum, statistics.maximum
    return Range(min(max(low, bottom), top), max(min(high, top), bottom))


def coarsened(bins: Bins, *, width: float, per_octave: int) -> Bins:
    """`bins` joined into cells with the same mass; cells are about `max(width, |x| / per_octave)` wide.

    A bin that is wider than that already stays as it is; a cell never holds values of both signs.

    Args:
        bins: Ascending intervals.
        width: Width of cells near zero, in the unit of the values; positive.
        per_octave: Cells to an octave further out.
    """
    if bins.counts.size == 0:
        return bins
    centers = bins.centers
    mantissa, exponent = np.frexp(centers)
    far = np.floor(mantissa * (2 * per_octave)) + exponent.astype(np.float64) * (4 * per_octave)
    near = np.floor(centers / width)
    is_near = np.abs(centers) < width * per_octave
    cell = np.where(is_near, near, far)
    starts = np.flatnonzero(np.concatenate([[True], (cell[1:] != cell[:-1]) | (is_near[1:] != is_near[:-1])]))
    ends = np.append(starts[1:], centers.size) - 1
    counts: npt.NDArray[Any] = np.add.reduceat(bins.counts, starts)
    return Bins(bins.low[starts], bins.high[ends], counts)
