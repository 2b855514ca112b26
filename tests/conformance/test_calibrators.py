"""What every calibrator owes, whatever it does; run over the registry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calibrators import CALIBRATORS
from quant.core.formats import GRIDS
from quant.core.statistics import TensorStatistics
from quant.errors import CalibrationError

pytestmark = [pytest.mark.parametrize("kind", CALIBRATORS.kinds()), pytest.mark.parametrize("grid", GRIDS.values(), ids=lambda g: g.name)]

finite = hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(-(2.0**127), 2.0**127, width=32))
tame = hnp.arrays(
    np.float32, st.integers(1, 60), elements=st.one_of(st.just(0.0), st.floats(2.0**-40, 2.0**40, width=32), st.floats(-(2.0**40), -(2.0**-40), width=32))
)

SAMPLES = {
    "a constant": np.full(100, 0.7),
    "a negative constant": np.full(100, -0.7),
    "zeros": np.zeros(100),
    "negative zeros": np.full(3, -0.0),
    "one value": np.array([3.5]),
    "two values": np.array([-1.0, 1.0]),
    "one-sided": np.maximum(np.random.default_rng(0).normal(size=5000), 0),
    "only negative": -np.random.default_rng(1).exponential(size=5000),
    "far from zero": np.random.default_rng(2).uniform(5, 10, size=5000),
    "huge outliers": np.append(np.random.default_rng(3).normal(size=5000), [1e30, -1e20]),
    "denormals": np.random.default_rng(4).normal(size=100) * 1e-40,
    "denormals of one sign": np.full(10, -1e-42),
    "the largest float": np.array([np.finfo(np.float32).max, np.finfo(np.float32).min, 1.0]),
    "every octave": np.ldexp(1.0, np.arange(-126, 127)),
    "mostly zeros": np.append(np.zeros(10000), [1.0, -2.0]),
}


def sound(found, statistics):
    return all(map(np.isfinite, found)) and statistics.minimum <= found.low <= found.high <= statistics.maximum


@pytest.mark.parametrize("name", SAMPLES)
def test_the_range_is_finite_ordered_and_inside_the_extremes(kind, grid, name):
    statistics = TensorStatistics.of(SAMPLES[name].astype(np.float32))
    found = CALIBRATORS.make(kind).range(statistics, grid)
    assert sound(found, statistics)
    assert all(type(end) is float for end in found)
    params = grid.params(*found)
    assert np.isfinite(params.scale)
    assert params.scale > 0


@settings(max_examples=40, deadline=None)
@given(values=finite)
def test_any_finite_values_give_a_sound_range(kind, grid, values):
    statistics = TensorStatistics.of(values)
    assert sound(CALIBRATORS.make(kind).range(statistics, grid), statistics)


@pytest.mark.parametrize("value", [0.0, 0.7, -0.7, 1e-42, 1.0, -3e38])
def test_a_constant_is_its_own_range(kind, grid, value):
    statistics = TensorStatistics.of(np.full(17, value, np.float32))
    found = CALIBRATORS.make(kind).range(statistics, grid)
    assert found == (np.float32(value), np.float32(value))


def test_no_values_are_an_error_with_a_hint(kind, grid):
    with pytest.raises(CalibrationError, match="no values were seen\nhint: give at least one calibration sample"):
        CALIBRATORS.make(kind).range(TensorStatistics(), grid)


def test_only_nan_is_an_error_that_counts_them(kind, grid):
    statistics = TensorStatistics.of(np.float32([np.nan, np.inf]))
    with pytest.raises(CalibrationError, match="no finite value was seen, only 2 NaN or infinite ones\nhint: run the FP32 model"):
        CALIBRATORS.make(kind).range(statistics, grid)


def test_without_a_histogram_the_extremes_are_given_or_an_error_says_what_to_do(kind, grid):
    statistics = TensorStatistics.of(np.float32([-1, 0.5, 3]), histogram=False)
    outcome = []
    try:
        outcome.append(CALIBRATORS.make(kind).range(statistics, grid))
    except CalibrationError as error:
        outcome.append(str(error))
    message = "the histogram holds 0 of 3 values\nhint: collect the statistics with histograms, or choose the calibrator 'minmax', which needs none"
    assert outcome in ([(-1.0, 3.0)], [message])


@settings(max_examples=15, deadline=None)
@given(values=finite, seed=st.integers(0, 99))
def test_merged_parts_give_the_range_of_one_pass(kind, grid, values, seed):
    parts = np.split(values, np.sort(np.random.default_rng(seed).integers(0, values.size + 1, 3)))
    merged = TensorStatistics()
    for part in reversed(parts):
        merged = merged.merge(TensorStatistics.of(part))
    calibrator = CALIBRATORS.make(kind)
    assert calibrator.range(merged, grid) == calibrator.range(TensorStatistics.of(values), grid)


@settings(max_examples=15, deadline=None)
@given(values=tame, power=st.integers(-20, 20))
def test_scaled_values_give_the_scaled_range(kind, grid, values, power):
    calibrator, factor = CALIBRATORS.make(kind), 2.0**power
    low, high = calibrator.range(TensorStatistics.of(values), grid)
    assert calibrator.range(TensorStatistics.of(values * np.float32(factor)), grid) == (low * factor, high * factor)


@settings(max_examples=15, deadline=None)
@given(values=finite)
def test_on_a_symmetric_grid_negated_values_have_the_same_scale(kind, grid, values):
    calibrator = CALIBRATORS.make(kind)
    low, high = calibrator.range(TensorStatistics.of(values), grid)
    mirrored = calibrator.range(TensorStatistics.of(-values), grid)
    if grid.symmetric:
        assert mirrored == (-high, -low)
        assert grid.params(*mirrored).scale == grid.params(low, high).scale
    else:
        assert sound(mirrored, TensorStatistics.of(-values))


def test_on_a_symmetric_grid_the_range_is_one_threshold_cut_to_the_extremes(kind, grid):
    statistics = TensorStatistics.of(np.random.default_rng(5).standard_t(3, 20000).astype(np.float32))
    low, high = CALIBRATORS.make(kind).range(statistics, grid)
    if grid.symmetric:
        threshold = max(-low, high)
        assert (low, high) == (max(-threshold, statistics.minimum), min(threshold, statistics.maximum))
    else:
        assert low < 0 < high


def test_the_same_statistics_give_the_same_bits(kind, grid):
    values = np.random.default_rng(6).laplace(size=30000).astype(np.float32)
    first = CALIBRATORS.make(kind).range(TensorStatistics.of(values), grid)
    again = CALIBRATORS.make(kind).range(TensorStatistics.of(values[::-1]), grid)
    assert [end.hex() for end in first] == [end.hex() for end in again]
