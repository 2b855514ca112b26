r"""MSE: the range with the smallest expected squared error of quantized values.

For a scale s the quantizer writes x as k s, where k is the value nearest to x / s that a code has, from k_low to k_high. The
values of a cell are taken as spread evenly over it, and the error is integrated over the cell exactly. In steps (u = x / s) the
integral of (u - k)^2 is

    G(u) = c(k) / 12 + r^3 / 3,      r = u - k,      c(k) = sum of (gap between neighbouring values)^3 from 0 to k,

which holds for rounding (every gap g passed adds g^3 / 12) and for clipping (k stays, r grows) alike. The codes of integers
are 1 apart, so c(k) = k. A cell of n values from a to b so adds n s^3 (G(b / s) - G(a / s)) / (b - a). Summed over neighbouring
cells, every edge x_i needs one G:

    error = s^3 sum_i (d_left - d_right) G(x_i / s),     d = n / (b - a), 0 where there is no cell.

Cells without width (all values of a bin equal an extreme) add n (x - k s)^2. No threshold below the mean magnitude can be
best: at the minimum, what one more unit of threshold saves in clipping, 2 E[max(|x| - t, 0)], equals what it costs in
rounding, 2 t / (12 * 127^2), and the former is at least 2 (E|x| - t). On a floating-point grid none below half of it can be:
clipping there costs at least E[x^2] / 8 (by (|x| - t)^2 >= x^2 / 4 beyond the mean, and Jensen), rounding without clipping at most
E[x^2] / 256, and what it adds next to zero is less than clipping costs for any sample of fewer than 10^10 values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators import CALIBRATORS
from calibrators.histogram import Doubles, coarsened, cut, folded, is_one_sided, require_histogram
from calibrators.search import search
from quant.core import registry
from quant.core.formats import FloatGrid, Grid, Range
from quant.core.statistics import Bins, TensorStatistics

_CELLS = 2048
"""Fine cells from end to end of a range: 8 to a step of an 8-bit grid; further out the bins themselves."""

_WORTH = 0.99
"""A range that clips is taken only if it is expected to save 1 %: less is below what bins can tell of discrete values."""


@CALIBRATORS.add
class MeanSquaredError:
    """Balance clipping against rounding: the smallest expected squared error.

    On a symmetric grid the threshold is searched over |x| (the spare lowest code is not counted on); on an asymmetric grid
    both ends are searched.
    """

    kind = "mse"

    class Options(registry.Options):
        """No options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def range(self, statistics: TensorStatistics, grid: Grid) -> Range:
        """The range with the smallest expected squared error.

        Raises:
            CalibrationError: Nothing finite was seen, or there is no histogram.
        """
        require_histogram(statistics)
        if statistics.magnitude == 0:
            return Range(0.0, 0.0)
        seen = folded(statistics) if grid.symmetric else statistics
        limits = Range(min(seen.minimum, 0.0), max(seen.maximum, 0.0))
        least = 0.5 if isinstance(grid, FloatGrid) else 0.99
        floor = min(least * seen.mean_magnitude, seen.magnitude) or seen.magnitude
        bins = seen.bins

        def fine(near: Range) -> SquaredError:
            return SquaredError.of(coarsened(bins, width=(near.high - near.low) / _CELLS, per_octave=_CELLS), grid)

        coarse = SquaredError.of(coarsened(bins, width=floor / 512, per_octave=32), grid)
        found = search(coarse, fine, limits, floor=floor, one_sided=is_one_sided(statistics, grid), steps=grid.steps)
        loss = fine(found)(np.array([limits.low, found.low]), np.array([limits.high, found.high]))
        if not loss[1] < _WORTH * loss[0]:
            return Range(statistics.minimum, statistics.maximum)
        return cut(statistics, -found.high if grid.symmetric else found.low, found.high)


@dataclass(frozen=True)
class SquaredError:
    """The summed squared error of a histogram's values, for many ranges at once.

    Args:
        grid: The grid that writes the values.
        edges: float64 `[edges]`, where the density changes, ascending.
        drops: float64 `[edges]`, density left of each edge minus density right of it, values per unit.
        points: float64 `[points]`, values without spread.
        masses: float64 `[points]`, how many values are at each.
    """

    grid: Grid
    edges: Doubles
    drops: Doubles
    points: Doubles
    masses: Doubles

    @classmethod
    def of(cls, cells: Bins, grid: Grid) -> SquaredError:
        """The loss of `cells` (ascending, not overlapping) on `grid`."""
        wide = cells.high > cells.low
        low, high, counts = cells.low[wide], cells.high[wide], cells.counts[wide]
        density = counts / (high - low)
        edges = np.stack([low, high], axis=1).reshape(-1)
        drops = np.stack([-density, density], axis=1).reshape(-1)
        if edges.size:  # neighbours share an edge, which then is computed once
            first = np.flatnonzero(np.concatenate([[True], edges[1:] != edges[:-1]]))
            edges, drops = edges[first], np.add.reduceat(drops, first)
        return cls(grid, edges, drops, cells.low[~wide], cells.counts[~wide].astype(np.float64))

    def __call__(self, lows: Doubles, highs: Doubles) -> Doubles:
        """The summed squared error for each range `lows[k]` to `highs[k]`, `[k]`."""
        params = self.grid.params(lows, highs)
        scale = params.scale.astype(np.float64)[:, None]
        zero = params.zero_point.astype(np.float64)[:, None]
        bottom, top = self.grid.low - zero, self.grid.high - zero
        rest = self.edges / scale
        step = np.clip(self.grid.round(rest), bottom, top)
        rest -= step
        area = rest * rest
        area *= rest
        area *= 4.0
        area += self.grid.gaps_cubed(step)
        # Not `@`: a BLAS that splits a sum among threads would make the last bits depend on their number.
        spread = np.einsum("kc,c->k", area, self.drops) * scale[:, 0] ** 3 / 12
        miss = self.points - np.clip(self.grid.round(self.points / scale), bottom, top) * scale
        return np.asarray(spread + np.einsum("kc,c->k", miss * miss, self.masses), np.float64)
