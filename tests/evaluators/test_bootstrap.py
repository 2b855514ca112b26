import numpy as np
import pytest

from evaluators import METRICS
from evaluators.bootstrap import paired_bootstrap
from quant.errors import DataError


def lower_is_better(baseline, value):
    return value - baseline


def interval(metric, baseline, candidate, **how):
    defaults = {"samples": np.arange(len(baseline)), "drop": lower_is_better, "alphas": (0.05, 0.05), "resamples": 1000, "seed": 0}
    return paired_bootstrap(metric, baseline, candidate, **(defaults | how))


@pytest.mark.parametrize("rare", [False, True], ids=["skewed", "rare"])
def test_one_sided_bounds_of_a_skewed_mean_miss_seldom(rare):
    """A true drop of 0.04 (or 0.03); of 200 runs with an error of 5 %, more than 17 misses has a chance of 1 %."""
    truth, low, high = (0.03 if rare else 0.04), 0, 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        baseline = rng.exponential(size=(200, 1))
        added = np.where(rng.random((200, 1)) < 0.03, rng.exponential(size=(200, 1)), 0) if rare else 0.02 * rng.exponential(size=(200, 1)) ** 2
        found = interval(METRICS.make("mae"), baseline, baseline + added, seed=seed, resamples=400)
        low, high = low + (found.lower > truth), high + (found.upper < truth)
    assert low <= 17
    assert high <= 17


def test_bounds_are_those_of_scipys_bca_and_one_sample_more_where_the_floor_is_out_of_the_way():
    """Differences as wide as the values themselves; scipy's quantiles lack the widening for n and have noise of their own."""
    from scipy.stats import bootstrap

    rng = np.random.default_rng(5)
    baseline, candidate = rng.exponential(size=(400, 1)), rng.exponential(size=(400, 1)) + 0.2
    ours = interval(METRICS.make("mae"), baseline, candidate, resamples=8000)
    theirs = bootstrap(((candidate - baseline)[:, 0],), np.mean, confidence_level=0.9, n_resamples=8000, method="BCa", rng=rng).confidence_interval
    width = theirs.high - theirs.low
    apart = candidate - baseline - (candidate - baseline).mean()
    assert ours.lower == pytest.approx(theirs.low + apart.min() / 401, abs=0.04 * width)
    assert ours.upper == pytest.approx(theirs.high + apart.max() / 401, abs=0.04 * width)


def test_a_metric_without_weights_is_resampled_by_its_value_alone():
    class Slow:
        kind, direction, unit, proportion = "slow", "lower", "x", False

        def value(self, records):
            return float(records[:, 0].mean())

    rng = np.random.default_rng(0)
    baseline = rng.exponential(size=(60, 1))
    candidate = baseline + rng.normal(size=(60, 1))
    slow, fast = interval(Slow(), baseline, candidate), interval(METRICS.make("mae"), baseline, candidate)
    assert (slow.lower, slow.upper) == pytest.approx((fast.lower, fast.upper), rel=1e-12)


def test_a_metric_that_is_undefined_in_many_resamples_is_refused():
    records = np.array([[0.1 * i, float(i == 0)] for i in range(30)])
    with pytest.raises(DataError, match=r"undefined in \d+ of 1000 resamples of 30 samples"):
        interval(METRICS.make("auc"), records, records)


def test_many_samples_are_jackknifed_in_blocks_with_the_same_result():
    rng = np.random.default_rng(0)
    baseline = rng.exponential(size=(5000, 1))
    candidate = baseline + rng.normal(0.1, 1, size=(5000, 1))
    found = interval(METRICS.make("mae"), baseline, candidate, resamples=4000)
    error = float(np.std(candidate - baseline)) / np.sqrt(5000)
    assert found.error == pytest.approx(error, rel=0.02)
    assert found.upper - found.drop == pytest.approx(1.645 * error, rel=0.1)
    assert found.drop - found.lower == pytest.approx(1.645 * error, rel=0.1)
