r"""Entropy: the range whose quantized distribution tells most of the original one (Kullback-Leibler).

The idea is the threshold search of TensorRT's first INT8 calibrator (S. Migacz, "8-bit Inference with TensorRT", 2017). Its
uniform histogram over [0, max] gets too coarse as soon as there is one large outlier: then all else falls into one cell, and
nothing is lost. Here the cells are the bins of the exact histogram (1/512 of their value wide), joined below the smallest
candidate to 1/512 of it. Cell i holds n_i of N values on a width w_i. A candidate range [l, h] is cut into the grid's levels
j; values beyond an end are clipped into its end cell, from 511/512 of the end to the end. With T values beyond that end,

    p_i = n_i / N, plus T / N in the end cell
    q_i = (n_j / n) (w_i / w_j),   n_j, w_j: sums over level j, n: sum of all n_j   (one level, one value: flat inside)
    KL  = sum_i p_i log(p_i / q_i)

and the smallest KL wins. q knows nothing of what lies beyond, so clipping costs; a wide level flattens what the cells still
tell apart, so a wide range costs too. w_j counts only widths where any values are; a cell that lies in two levels is split
by width. Exact zeros are left out: every grid writes them exactly. Candidates end where an occupied cell ends, so that the
end cell is never empty. A level's q has one density d_j = n_j / w_j, and so, but for the end cells,

    N KL = sum_i n_i log(n_i / w_i) - sum_j n_j log(d_j) + N log(n / N),

where the first sum is looked up in a running total: a candidate costs as much as it has levels, not cells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calibrators import CALIBRATORS
from calibrators.histogram import Doubles, coarsened, cut, folded, is_one_sided, require_histogram
from calibrators.search import search
from quant.core import registry
from quant.core.formats import Grid, Range
from quant.core.statistics import Bins, TensorStatistics

Indices = npt.NDArray[np.intp]

_LARGEST = float(np.finfo(np.float32).max)
_CELLS = 512
"""Cells below the smallest candidate: two or four to a level of 8 bits there, more for every wider candidate."""

_WITHIN = 1 - 1 / 512
"""Where the end cell of an end at 1 begins. Its width must not hang on where the bins happen to lie."""

_KEPT = 0.9
"""No candidate leaves out more than a tenth of the values that are not zero."""


@CALIBRATORS.add
class Entropy:
    """The smallest KL divergence between the values and what the grid keeps of them.

    On a symmetric grid the threshold is searched over |x|; on an asymmetric grid both ends are searched, each with the
    values beyond it in its last cell.
    """

    kind = "entropy"

    class Options(registry.Options):
        """No options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def range(self, statistics: TensorStatistics, grid: Grid) -> Range:
        """The range with the smallest KL divergence.

        Raises:
            CalibrationError: Nothing finite was seen, or there is no histogram.
        """
        require_histogram(statistics)
        seen = folded(statistics) if grid.symmetric else statistics
        floor = _quantile_of_magnitude(seen, _KEPT)
        if floor == 0:
            return Range(statistics.minimum, statistics.maximum)
        loss = Divergence.of(seen, grid, floor)
        limits = Range(min(seen.minimum, 0.0), max(seen.maximum, 0.0))
        found = search(loss, lambda _near: loss, limits, floor=floor, one_sided=is_one_sided(statistics, grid), steps=grid.steps)
        first, last = loss.ends(np.array([found.low]), np.array([found.high]))
        low, high = min(float(loss.cells.low[first[0]]), 0.0), max(float(loss.cells.high[last[0]]), 0.0)
        return cut(statistics, -high if grid.symmetric else low, high)


def _quantile_of_magnitude(statistics: TensorStatistics, share: float) -> float:
    """The magnitude that `share` of the values that are not zero do not exceed; 0.0 when all are zero."""
    magnitudes = folded(statistics)
    bins = magnitudes.bins
    kept = magnitudes.codes != 0
    if not kept.any():
        return 0.0
    return Bins(bins.low[kept], bins.high[kept], bins.counts[kept]).quantile(share)


@dataclass(frozen=True)
class Divergence:
    """The KL divergence of a histogram's values from their quantized form, for many ranges at once.

    Args:
        cells: Occupied cells without the one of zero, in their full width.
        edges: float64 `[2 cells]`, both edges of each cell, ascending.
        reached: float64 `[3, 2 cells]`: running sums up to each edge of the values n, of the occupied width w (in units of
            the smallest candidate) and of n log(n / w).
        cuts: float64 `[levels + 1]`, where the grid's levels begin and end, as shares of the range.
    """

    cells: Bins
    edges: Doubles
    reached: Doubles
    cuts: Doubles

    @classmethod
    def of(cls, statistics: TensorStatistics, grid: Grid, floor: float) -> Divergence:
        """The loss of `statistics` on `grid` (of absolute values, when the grid is symmetric) for thresholds from `floor`."""
        # A bin keeps its full width, even where all its values equal an extreme: without width there is no density.
        full = replace(statistics, minimum=-_LARGEST, maximum=_LARGEST).bins
        kept = full.low != 0
        cells = coarsened(Bins(full.low[kept], full.high[kept], full.counts[kept]), width=floor / _CELLS, per_octave=_CELLS)
        width = (cells.high - cells.low) / floor
        rows = np.stack([cells.counts, width, cells.counts * np.log(cells.counts / width)])
        reached = np.zeros((3, width.size, 2))
        reached[:, :, 1] = np.cumsum(rows, axis=1)
        reached[:, 1:, 0] = reached[:, :-1, 1]
        return cls(cells, np.stack([cells.low, cells.high], axis=1).reshape(-1), reached.reshape(3, -1), grid.cuts)

    def ends(self, lows: Doubles, highs: Doubles) -> tuple[Indices, Indices]:
        """The first and the last cell of each range: those that hold its ends, or else the next ones inwards."""
        # An extreme may be the very edge of its cell: all values of a bin can be alike (6.0 behind a ReLU6).
        first = np.searchsorted(self.cells.high, lows, side="left")
        last = np.searchsorted(self.cells.low, highs, side="right") - 1
        return np.minimum(first, self.cells.low.size - 1), np.maximum(last, 0)

    def __call__(self, lows: Doubles, highs: Doubles) -> Doubles:
        """The divergence in nats for each range `lows[k]` to `highs[k]`, `[k]`; infinite where nothing is inside."""
        first, last = self.ends(lows, highs)
        low, high = np.minimum(self.cells.low[first], 0.0)[:, None], np.maximum(self.cells.high[last], 0.0)[:, None]
        cuts = low + (high - low) * self.cuts
        cuts[:, -1:] = high
        both = np.diff(np.interp(cuts, self.edges, self.reached[0] + 1j * self.reached[1]), axis=1)  # one look-up for two sums
        mass, width = both.real, both.imag
        total, kept = float(self.reached[0, -1]), mass.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            density = mass / width
            flat = np.where(mass > 0, mass * np.log(density), 0.0).sum(axis=1)
            loss = self._upto(high[:, 0], 2) - self._upto(low[:, 0], 2) - flat + total * np.log(kept / total)
            loss += self._clipped(low[:, 0], low[:, 0] * _WITHIN, density[:, 0], self._upto(low[:, 0], 0))
            loss += self._clipped(high[:, 0] * _WITHIN, high[:, 0], density[:, -1], total - self._upto(high[:, 0], 0))
        return np.asarray(np.where(np.isfinite(loss) & (kept > 0), loss / total, np.inf), np.float64)

    def _upto(self, values: Doubles, row: int) -> Doubles:
        return np.asarray(np.interp(values, self.edges, self.reached[row]), np.float64)

    def _clipped(self, start: Doubles, stop: Doubles, density: Doubles, beyond: Doubles) -> Doubles:
        """What `beyond` values more between `start` and `stop`, taken as one cell, add to N KL when q has `density` there."""
        mass, width, told = (self._upto(stop, row) - self._upto(start, row) for row in range(3))
        together = (mass + beyond) * np.log((mass + beyond) / (width * density))
        return np.asarray(np.where(beyond > 0, together - (told - mass * np.log(density)), 0.0), np.float64)
