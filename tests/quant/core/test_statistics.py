"""Statistics of one streaming pass: exact where they say so, and within a bin elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import quant.core.statistics as statistics_module
from quant.core.statistics import RELATIVE_BIN_WIDTH, Collector, TensorStatistics

LARGE = 2.0**127
anything = hnp.arrays(np.float32, st.integers(0, 60), elements=st.floats(width=32))
finite = hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(-LARGE, LARGE, width=32))
# Below 2^-117 a bin is wider than 1/512 of what is in it (denormals aside, as the module says).
normal = st.one_of(st.floats(2.0**-100, 2.0**60, width=32), st.floats(-(2.0**60), -(2.0**-100), width=32), st.just(0.0))
normals = hnp.arrays(np.float32, st.integers(1, 60), elements=normal)
properties = settings(max_examples=100, deadline=None)


def same(left, right):
    """Equal field by field, arrays and the sign of zero included."""
    return repr((left.count, left.minimum, left.maximum, left.not_finite, left.codes.tolist(), left.counts.tolist())) == repr(
        (right.count, right.minimum, right.maximum, right.not_finite, right.codes.tolist(), right.counts.tolist())
    )


@properties
@given(values=anything, cuts=st.lists(st.integers(0, 60), max_size=4), order=st.randoms(use_true_random=False))
def test_parts_merged_in_any_order_are_one_pass(values, cuts, order):
    parts = np.split(values, sorted(min(cut, values.size) for cut in cuts))
    order.shuffle(parts)
    merged = TensorStatistics()
    for part in parts:
        merged = merged.merge(TensorStatistics.of(part))
    assert same(merged, TensorStatistics.of(values))


@properties
@given(values=anything, cuts=st.lists(st.integers(0, 60), max_size=4), pending=st.integers(1, 40))
def test_a_collector_is_one_pass(values, cuts, pending):
    collector = Collector(pending=pending)
    for part in np.split(values, sorted(min(cut, values.size) for cut in cuts)):
        collector.add(part)
    assert same(collector.result(), TensorStatistics.of(values))


@properties
@given(values=anything)
def test_extremes_are_exact_and_everything_is_counted(values):
    statistics = TensorStatistics.of(values)
    kept = values[np.isfinite(values)]
    assert statistics.count == kept.size == statistics.counts.sum()
    assert statistics.not_finite == values.size - kept.size
    if kept.size:
        assert (statistics.minimum, statistics.maximum) == (kept.min(), kept.max())
        assert statistics.magnitude == np.abs(kept).max()
    else:
        assert (statistics.minimum, statistics.maximum, statistics.codes.size) == (0, 0, 0)


@properties
@given(values=finite)
def test_bins_are_ascending_inside_the_extremes_and_hold_the_values(values):
    bins = TensorStatistics.of(values).bins
    assert (bins.low <= bins.high).all()
    assert (bins.high[:-1] <= bins.low[1:]).all()
    assert bins.low[0] >= values.min()
    assert bins.high[-1] <= values.max()
    for value in values[np.abs(values) > 2.0**-135].astype(np.float64):
        assert ((bins.low <= value) & (value <= bins.high)).any()


@properties
@given(values=normals)
def test_no_bin_is_wider_than_its_share(values):
    bins = TensorStatistics.of(values).bins
    far = np.minimum(np.abs(bins.low), np.abs(bins.high)) > 0
    assert (bins.high - bins.low <= RELATIVE_BIN_WIDTH * np.minimum(np.abs(bins.low), np.abs(bins.high)))[far].all()


@properties
@given(values=normals, share=st.floats(0, 1))
def test_a_quantile_is_within_a_bin_of_numpys(values, share):
    found = TensorStatistics.of(values).bins.quantile(share)
    # Next to a rank the product of share and count may fall on either side of it.
    truths = np.quantile(values.astype(np.float64), np.clip([share - 1e-12, share, share + 1e-12], 0, 1), method="inverted_cdf")
    assert min(np.abs(found - truths) - np.abs(truths) * RELATIVE_BIN_WIDTH) <= 2.0**-135


@properties
@given(values=normals)
def test_moments_are_within_2_to_the_minus_10(values):
    statistics = TensorStatistics.of(values)
    exact = values.astype(np.float64)
    magnitude = np.abs(exact).mean()
    # Half a bin is 2^-10 of the value; 2^-30 is room for the sums themselves.
    bound = (2.0**-10 + 2.0**-30) * magnitude + 2.0**-136
    assert abs(statistics.mean - exact.mean()) <= bound
    assert abs(statistics.mean_magnitude - magnitude) <= bound
    rms = np.sqrt(np.square(exact).mean())
    assert abs(statistics.rms - rms) <= (2.0**-10 + 2.0**-30) * rms + 2.0**-136


def test_moments_do_not_hang_on_the_number_of_threads():
    from threadpoolctl import threadpool_limits

    statistics = TensorStatistics.of(np.random.default_rng(0).standard_t(2, 300000).astype(np.float32))
    assert statistics.codes.size > 10000  # enough for a BLAS to split a sum
    found = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            found.append((statistics.mean.hex(), statistics.mean_magnitude.hex(), statistics.rms.hex()))
    assert len(set(found)) == 1


def test_minus_zero_is_zero():
    statistics = TensorStatistics.of(np.float32([-0.0, 0.0, -0.0]))
    assert (statistics.codes.tolist(), statistics.counts.tolist()) == ([0], [3])
    assert (repr(statistics.minimum), repr(statistics.maximum)) == ("0.0", "0.0")
    assert repr(TensorStatistics.of(np.float32([-0.0, 1])).minimum) == "0.0"


def test_nan_and_infinities_are_counted_apart():
    statistics = TensorStatistics.of(np.float32([np.nan, 1, np.inf, -np.inf, -2, np.nan]))
    assert (statistics.count, statistics.not_finite, statistics.minimum, statistics.maximum) == (2, 4, -2, 1)
    nothing = TensorStatistics.of(np.float32([np.nan, np.inf]))
    assert (nothing.count, nothing.not_finite) == (0, 2)
    assert nothing.merge(statistics).not_finite == statistics.merge(nothing).not_finite == 6


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_float_types_are_taken_as_float32(dtype):
    values = np.random.default_rng(1).normal(size=1000).astype(dtype)
    assert same(TensorStatistics.of(values), TensorStatistics.of(values.astype(np.float32)))


def test_float64_beyond_float32_is_infinite_and_counted_as_such():
    statistics = TensorStatistics.of(np.array([1e300, -1e300, 2.0]))
    assert (statistics.count, statistics.not_finite, statistics.maximum) == (1, 2, 2)
    collector = Collector()
    collector.add(np.array([1e300, 2.0]))
    assert collector.result().not_finite == 1


def test_shape_and_memory_order_do_not_matter():
    values = np.random.default_rng(2).normal(size=(40, 30, 6)).astype(np.float32)
    expected = TensorStatistics.of(values)
    assert same(TensorStatistics.of(values.transpose(2, 0, 1)), expected)
    assert same(TensorStatistics.of(np.asfortranarray(values)), expected)
    assert same(TensorStatistics.of(values[::-1, ::-1]), expected)
    assert same(TensorStatistics.of(values[::2]).merge(TensorStatistics.of(values[1::2])), expected)
    assert TensorStatistics.of(np.asarray(np.float32(3))).count == 1


def test_nothing_gives_nothing():
    for empty in (TensorStatistics.of(np.zeros((0, 4), np.float32)), TensorStatistics(), Collector().result()):
        assert (empty.count, empty.minimum, empty.maximum, empty.not_finite, empty.bins.counts.size) == (0, 0, 0, 0, 0)
        assert (empty.mean, empty.mean_magnitude, empty.rms) == (0, 0, 0)


def test_extremes_alone_keep_no_histogram():
    statistics = TensorStatistics.of(np.float32([3, -1]), histogram=False)
    assert (statistics.count, statistics.minimum, statistics.maximum, statistics.codes.size) == (2, -1, 3, 0)


def test_bins_by_hand():
    # 1.0 is 0x3F800000; the bin of its top 18 bits reaches to 1 + 2^-9.
    statistics = TensorStatistics.of(np.float32([1.0, 1.001, 1.5, -4.0]))
    assert statistics.codes.tolist() == [0x3F800000 >> 14, 0x3FC00000 >> 14, 0xC0800000 >> 14]
    bins = statistics.bins
    assert bins.low.tolist() == [-4.0, 1.0, 1.5]
    assert bins.high.tolist() == [-4.0, 1.0 + 2.0**-9, 1.5]
    assert bins.counts.tolist() == [1, 2, 1]


def test_the_largest_floats_stay_finite():
    largest = float(np.finfo(np.float32).max)
    bins = TensorStatistics.of(np.float32([largest, -largest, 1e-45])).bins
    assert (bins.low[0], bins.high[-1]) == (-largest, largest)
    assert np.isfinite(bins.centers).all()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("pending", [1, 5000, 1 << 20])
def test_any_mixture_of_long_and_short_arrays_gives_the_statistics_of_one_pass(dense, pending, monkeypatch):
    monkeypatch.setattr(statistics_module, "_CHUNK", 3000)
    monkeypatch.setattr(statistics_module, "_LONG", 1000)
    monkeypatch.setattr(statistics_module, "_INT32_MAX", 10000)  # so that the dense counts move into the total on the way
    r = np.random.default_rng(3)
    parts = [r.standard_t(2, n).astype(np.float32) for n in (7000, 1, 999, 1000, 3001, 20, 12000, 0, 64)]
    parts[2][:5] = [np.nan, np.inf, -np.inf, -0.0, 0.0]
    collector = Collector(pending=pending, dense=dense)
    for part in parts:
        collector.add(part)
    found, whole = collector.result(), np.concatenate(parts)
    codes = whole[np.isfinite(whole)].view(np.uint32) >> 14
    codes[codes == 1 << 17] = 0
    bins, counts = np.unique(codes, return_counts=True)
    assert (found.codes.tolist(), found.counts.tolist()) == (bins.tolist(), counts.tolist())
    assert (found.count, found.not_finite) == (whole.size - 3, 3)
    assert (found.minimum, found.maximum) == (np.nanmin(np.where(np.isinf(whole), np.nan, whole)), np.nanmax(np.where(np.isinf(whole), np.nan, whole)))
