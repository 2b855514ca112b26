r"""Entropy: the range whose quantized distribution tells most of the original one (Kullback-Leibler).

The idea is the threshold search of TensorRT's first INT8 calibrator (S. Migacz, "8-bit Inference with TensorRT", 2017). Its
uniform histogram over [0, max] gets too coarse as soon as there is one large outlier: then all else falls into one cell, and
nothing is lost. Here the cells are the bins of the exact histogram (1/512 of their value wide), joined below 1/256 of the
smallest candidate. Cell i holds n_i of N values on a width w_i. A candidate range [l, h] is cut into the grid's levels j;
with T the values beyond an end,

    p_i = n_i / N, plus T / N in the last cell of that end            (values beyond are clipped to the end)
    q_i = (n_j / n) (w_i / w_j),   n_j, w_j: sums over level j, n: sum of all n_j   (one level, one value: flat inside)
    KL  = sum_i p_i log(p_i / q_i)

and the smallest KL wins. q knows nothing of what lies beyond, so clipping costs; a wide level flattens what the cells still
tell apart, so a wide range costs too. w_j counts only widths where any values are; a cell that lies in two levels is split
by width. Exact zeros are left out: every grid writes them exactly. Candidates end where an occupied cell ends, so that the
last cell is never empty. A level's q has one density d_j = (n_j / n) / w_j, and so, but for the T,

    N KL = sum_i n_i log(n_i / w_i) - sum_j n_j log(n_j / w_j) + N log(n / N),

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
_CELLS = 256
"""Cells below the smallest candidate: two to a level of 8 bits there, more for every wider candidate."""

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
        reached: complex128 `[2 cells]`: values up to each edge, and as imaginary part the occupied width up to it, in units
            of the smallest candidate.
        told: float64 `[cells + 1]`, running sum of n log(n / w).
        levels: Levels of the grid that a range is cut into.
    """

    cells: Bins
    edges: Doubles
    reached: npt.NDArray[np.complex128]
    told: Doubles
    levels: int

    @classmethod
    def of(cls, statistics: TensorStatistics, grid: Grid, floor: float) -> Divergence:
        """The loss of `statistics` on `grid` (of absolute values, when the grid is symmetric) for thresholds from `floor`."""
        # A bin keeps its full width, even where all its values equal an extreme: without width there is no density.
        full = replace(statistics, minimum=-_LARGEST, maximum=_LARGEST).bins
        kept = full.low != 0
        cells = coarsened(Bins(full.low[kept], full.high[kept], full.counts[kept]), width=floor / _CELLS, per_octave=_CELLS * 4)
        width = (cells.high - cells.low) / floor
        reached = np.zeros((width.size, 2), np.complex128)
        reached[:, 1] = np.cumsum(cells.counts) + 1j * np.cumsum(width)
        reached[1:, 0] = reached[:-1, 1]
        told = np.concatenate([[0.0], np.cumsum(cells.counts * np.log(cells.counts / width))])
        levels = (grid.steps // 2 if grid.symmetric else grid.steps) + 1
        return cls(cells, np.stack([cells.low, cells.high], axis=1).reshape(-1), reached.reshape(-1), told, levels)

    def ends(self, lows: Doubles, highs: Doubles) -> tuple[Indices, Indices]:
        """The first and the last cell of each range: those that hold its ends, or else the next ones inwards."""
        first = np.searchsorted(self.cells.high, lows, side="right")
        last = np.searchsorted(self.cells.low, highs, side="left") - 1
        return np.minimum(first, self.cells.low.size - 1), np.maximum(last, 0)

    def __call__(self, lows: Doubles, highs: Doubles) -> Doubles:
        """The divergence in nats for each range `lows[k]` to `highs[k]`, `[k]`; infinite where nothing is inside."""
        first, last = self.ends(lows, highs)
        low, high = np.minimum(self.cells.low[first], 0.0)[:, None], np.maximum(self.cells.high[last], 0.0)[:, None]
        ends = low + (high - low) * (np.arange(self.levels + 1) / self.levels)
        ends[:, -1:] = high
        reached = np.interp(ends, self.edges, self.reached)
        inside = np.diff(reached, axis=1)
        mass, width = inside.real, inside.imag
        total, kept = float(self.reached[-1].real), mass.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            density = mass / width
            flat = np.where(mass > 0, mass * np.log(density), 0.0).sum(axis=1)
            loss = self.told[last + 1] - self.told[first] - flat + total * np.log(kept / total)
            loss += self._clipped(first, density[:, 0], reached[:, 0].real)
            loss += self._clipped(last, density[:, -1], total - reached[:, -1].real)
        return np.asarray(np.where(np.isfinite(loss) & (kept > 0), loss / total, np.inf), np.float64)

    def _clipped(self, cell: Indices, density: Doubles, beyond: Doubles) -> Doubles:
        """What `beyond` values more in `cell` add to N KL, when q has `density` there."""
        counts = self.cells.counts[cell]
        expected = (self.reached[2 * cell + 1] - self.reached[2 * cell]).imag * density
        added = (counts + beyond) * np.log((counts + beyond) / expected) - counts * np.log(counts / expected)
        return np.asarray(np.where(beyond > 0, added, 0.0), np.float64)
