"""Percentile: leave out a fixed share of the values, the furthest ones."""

from __future__ import annotations

from pydantic import Field

from calibrators import CALIBRATORS
from calibrators.histogram import cut, folded, require_histogram
from quant.core import registry
from quant.core.formats import Grid, Range
from quant.core.statistics import Bins, TensorStatistics

_NOTHING = 2.0**-135
"""Width of the bin of zero."""


@CALIBRATORS.add
class Percentile:
    """Keep `percentile` % of the values.

    On a symmetric grid the threshold is that percentile of |x|. On an asymmetric grid each tail gives up half of the rest:
    with 99.99, the range runs from the 0.005th to the 99.995th percentile. Both are inverted distribution functions, true
    to one bin (1/512 of the value).
    """

    kind = "percentile"

    class Options(registry.Options):
        """How much to keep."""

        percentile: float = Field(99.99, gt=50, le=100, description="values kept inside the range, in percent")

    def __init__(self, options: Options) -> None:
        self.options = options

    def range(self, statistics: TensorStatistics, grid: Grid) -> Range:
        """The range that holds `percentile` % of the values.

        Raises:
            CalibrationError: Nothing finite was seen, or there is no histogram.
        """
        require_histogram(statistics)
        left_out = (100 - self.options.percentile) / 100
        if grid.symmetric:
            threshold = _quantile(folded(statistics).bins, 1 - left_out)
            return cut(statistics, -threshold, threshold)
        bins = statistics.bins
        return cut(statistics, _quantile(bins, left_out / 2), _quantile(bins, 1 - left_out / 2))


def _quantile(bins: Bins, share: float) -> float:
    """The quantile, where what falls into the bin of zero is zero (and not a denormal below 2^-135)."""
    found = bins.quantile(share)
    return found if abs(found) > _NOTHING else 0.0
