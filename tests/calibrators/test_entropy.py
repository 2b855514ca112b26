import itertools

import numpy as np
import pytest

from calibrators import CALIBRATORS
from calibrators.entropy import Divergence
from quant.core.formats import INT8, UINT8, Grid
from quant.core.statistics import TensorStatistics


def divergence(cells, levels, low, high):
    """KL of the clipped distribution from its quantized form, piece by piece as the definition has it; `cells`: (low, high, count)."""
    total = sum(n for _, _, n in cells)
    below, above = sum(n for _, b, n in cells if b <= low), sum(n for a, _, n in cells if a >= high)
    cuts = [low + (high - low) * level / levels for level in range(levels)] + [high]
    marks = sorted({*cuts, *(low * 511 / 512 for _ in [0] if below), *(high * 511 / 512 for _ in [0] if above)})
    pieces = []  # level, cell, mass, width; an end's cell is one cell, whatever else it is made of
    for start, stop in itertools.pairwise(marks):
        level = max(number for number, cut in enumerate(cuts[:-1]) if cut <= start)
        for number, (a, b, n) in enumerate(cells):
            shared = min(b, stop) - max(a, start)
            if shared > 0:
                end = "below" if below and stop <= low * 511 / 512 else "above" if above and start >= high * 511 / 512 else number
                pieces.append(((level, end), n * shared / (b - a), shared))
    inside = sum(mass for _, mass, _ in pieces)
    kl = 0.0
    for cell in {cell for cell, _, _ in pieces}:
        mass, width = (sum(piece[field] for piece in pieces if piece[0] == cell) for field in (1, 2))
        level_mass, level_width = (sum(piece[field] for piece in pieces if piece[0][0] == cell[0]) for field in (1, 2))
        p = (mass + {"below": below, "above": above}.get(cell[1], 0)) / total
        q = level_mass / inside * width / level_width
        kl += p * np.log(p / q)
    return kl


TINY = Grid("tiny", -4, 3, symmetric=True)
TINY_ASYMMETRIC = Grid("tiny asymmetric", 0, 7, symmetric=False)


def cells_of(loss):
    return list(zip(loss.cells.low, loss.cells.high, loss.cells.counts, strict=True))


@pytest.mark.parametrize("high", [40.0, 33.0, 21.0, 9.0])
def test_the_divergence_of_a_threshold_is_that_of_the_definition(high):
    values = np.float32([0, 0, 1, 1, 1, 2, 3, 3, 5, 7, 7, 9, 12, 15, 20, 33, 40])
    loss = Divergence.of(TensorStatistics.of(values), TINY, 1.0)
    assert loss.cuts.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert loss.cells.counts.sum() == 15
    cells = cells_of(loss)
    end = max(b for a, b, _ in cells if a < high + 1e-9)
    found = loss(np.array([0.0]), np.array([high + 1e-9]))[0]
    assert found == pytest.approx(divergence(cells, 4, 0.0, end), rel=1e-9)


@pytest.mark.parametrize(("low", "high"), [(-20.0, 40.0), (-20.0, 12.0), (-3.0, 40.0), (-7.0, 15.0)])
def test_the_divergence_of_two_ends_is_that_of_the_definition(low, high):
    values = np.float32([-20, -7, -3, -3, -1, 1, 1, 2, 5, 9, 12, 12, 15, 40])
    loss = Divergence.of(TensorStatistics.of(values), TINY_ASYMMETRIC, 1.0)
    cells = cells_of(loss)
    start, end = min(a for a, b, _ in cells if b > low - 1e-9), max(b for a, b, _ in cells if a < high + 1e-9)
    found = loss(np.array([low - 1e-9]), np.array([high + 1e-9]))[0]
    assert found == pytest.approx(divergence(cells, 8, start, end), rel=1e-9)


def test_the_threshold_found_is_among_the_best_twentieth_of_all(values):
    magnitudes = TensorStatistics.of(np.abs(values))
    found = CALIBRATORS.make("entropy").range(TensorStatistics.of(values), INT8)
    floor = np.percentile(np.abs(values[values != 0]), 90, method="inverted_cdf")
    loss = Divergence.of(magnitudes, INT8, float(floor))
    ends = loss.cells.high[loss.cells.high >= floor]
    every = np.concatenate([loss(np.zeros(part.size), part) for part in np.array_split(ends, max(ends.size // 100, 1))])
    # The curve has the noise of the values: a threshold must be better than nearly all, not than every lucky one.
    assert loss(np.zeros(1), np.array([max(-found.low, found.high)]))[0] <= np.quantile(every, 0.05)


def test_exact_zeros_do_not_move_the_threshold():
    values = np.random.default_rng(1).normal(size=50000).astype(np.float32)
    with_zeros = np.append(values, np.zeros(200000, np.float32))
    entropy = CALIBRATORS.make("entropy")
    assert entropy.range(TensorStatistics.of(values), INT8) == entropy.range(TensorStatistics.of(with_zeros), INT8)


@pytest.mark.parametrize("grid", [INT8, UINT8], ids=lambda g: g.name)
def test_a_few_huge_outliers_are_left_out(grid):
    values = np.random.default_rng(2).normal(size=200000).astype(np.float32)
    bulk = float(np.abs(values).max())
    values[:5], values[5:10] = 1e4, -1e4
    low, high = CALIBRATORS.make("entropy").range(TensorStatistics.of(values), grid)
    assert -1.01 * bulk <= low < 0 < high <= 1.01 * bulk


def test_evenly_spread_values_keep_their_whole_range():
    # A flat distribution loses nothing by flattening, so nothing pays for clipping.
    values = np.linspace(-1, 1, 100001, dtype=np.float32)
    low, high = CALIBRATORS.make("entropy").range(TensorStatistics.of(values), INT8)
    assert (low, high) == (-1, 1)
