import numpy as np
import pytest

from calibrators import CALIBRATORS
from calibrators.histogram import coarsened
from calibrators.mse import SquaredError
from quant.core.formats import GRIDS, INT8, UINT8
from quant.core.statistics import Bins, TensorStatistics

grids = pytest.mark.parametrize("grid", GRIDS.values(), ids=lambda g: g.name)


def true_error(values, grid, low, high):
    """Mean squared error of the values themselves, in float64, written out anew."""
    params = grid.params(low, high)
    scale, zero = float(params.scale), int(params.zero_point)
    exact = values.astype(np.float64)
    if grid.has_nan:  # floating point: rounded by the type itself
        codes = np.clip(exact / scale, grid.low, grid.high).astype(grid.dtype).astype(np.float64)
    else:
        codes = np.clip(np.rint(exact / scale) + zero, grid.low, grid.high)
    return np.mean((exact - (codes - zero) * scale) ** 2)


@grids
def test_no_other_calibrator_has_a_smaller_true_error(values, grid):
    statistics = TensorStatistics.of(values)
    errors = {kind: true_error(values, grid, *CALIBRATORS.make(kind).range(statistics, grid)) for kind in CALIBRATORS}
    assert errors["mse"] <= 1.02 * min(errors.values())


def test_a_symmetric_threshold_is_as_good_as_brute_force_on_the_values(values):
    values = values.reshape(-1)[::4]
    found = CALIBRATORS.make("mse").range(TensorStatistics.of(values), INT8)
    candidates = np.abs(values).max() * np.geomspace(1 / 300, 1, 100)
    best = min(true_error(values, INT8, -t, t) for t in candidates)
    assert true_error(values, INT8, *found) <= 1.02 * best


def test_both_ends_are_as_good_as_brute_force_on_the_values():
    values = np.random.default_rng(3).gamma(1.0, size=20000).astype(np.float32) - np.float32(0.5) * np.random.default_rng(4).gamma(0.5, size=20000).astype(
        np.float32
    )
    found = CALIBRATORS.make("mse").range(TensorStatistics.of(values), UINT8)
    lows, highs = values.min() * np.linspace(0.2, 1, 33), values.max() * np.linspace(0.2, 1, 33)
    best = min(true_error(values, UINT8, low, high) for low in lows for high in highs)
    assert true_error(values, UINT8, *found) <= 1.01 * best


def test_outliers_on_both_sides_are_given_up_together():
    r = np.random.default_rng(5)
    values = np.append(r.normal(size=1 << 20), [3000.0, -3000.0]).astype(np.float32)
    # all in range: the step is 23.5, and every other value becomes 0; without the two: 2 * 3000^2 / 2^20 = 17 is more than 1
    low, high = CALIBRATORS.make("mse").range(TensorStatistics.of(values), UINT8)
    assert (low, high) == (-3000, 3000)
    values[-2:] = 500.0, -500.0  # 2 * 500^2 / 2^20 = 0.48 is less than 1
    low, high = CALIBRATORS.make("mse").range(TensorStatistics.of(values), UINT8)
    assert -500 < low < 0 < high < 500


@grids
@pytest.mark.parametrize("factor", [1.0, 0.5, 0.1])
def test_the_expected_error_is_that_of_values_spread_evenly_over_each_bin(grid, factor):
    r = np.random.default_rng(6)
    low = np.sort(r.uniform(-2 if grid.low < 0 else -1, 3, 40))
    high = low + np.append(np.diff(low), 0.1) * r.uniform(0.1, 1, 40)
    counts = r.integers(1, 50, 40)
    found = SquaredError.of(Bins(low, high, counts), grid)(np.array([factor * low[0]]), np.array([factor * high[-1]]))[0]
    fractions = (np.arange(4000) + 0.5) / 4000
    each = [true_error(a + (b - a) * fractions, grid, factor * low[0], factor * high[-1]) for a, b in zip(low, high, strict=True)]
    assert found == pytest.approx(counts @ np.array(each), rel=1e-3)


def test_one_bin_by_hand():
    # UINT8 for 0..255 has the step 1: values from 0 to 0.5 lose x^2, on average 1/12; those from 255 to 258 are cut to 255, on average 3.
    loss = SquaredError.of(Bins(np.array([0.0, 255.0]), np.array([0.5, 258.0]), np.array([12, 1])), UINT8)
    assert loss(np.array([0.0]), np.array([255.0]))[0] == pytest.approx(12 / 12 + 3)


def test_values_without_spread_by_hand():
    loss = SquaredError.of(Bins(np.array([7.25, 300.0]), np.array([7.25, 300.0]), np.array([16, 1])), UINT8)
    assert loss(np.array([0.0]), np.array([255.0]))[0] == pytest.approx(16 * 0.25**2 + 45**2)


def test_coarser_cells_keep_all_mass_and_never_hold_both_signs(values):
    bins = TensorStatistics.of(values).bins
    cells = coarsened(bins, width=float(np.abs(values).max()) / 500, per_octave=32)
    assert cells.counts.sum() == values.size
    assert ((cells.low >= 0) | (cells.high <= 0)).all()
    assert (cells.low[1:] >= cells.high[:-1]).all()
    assert cells.counts.size < max(bins.counts.size / 3, 300)
    inside = np.searchsorted(cells.low, bins.centers, side="right") - 1
    assert (bins.centers <= cells.high[inside]).all()
