import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from evaluators import METRICS
from evaluators.gate import gate
from evaluators.matched import Counts, drop_bounds
from quant.errors import DataError


def cells(both, lost, won, neither):
    """Records of a baseline and a candidate that are right on so many samples."""
    base = [1.0] * (both + lost) + [0.0] * (won + neither)
    cand = [1.0] * both + [0.0] * lost + [1.0] * won + [0.0] * neither
    return np.array(base)[:, None], np.array(cand)[:, None]


def judge(metric, baseline, candidate, **how):
    return gate(metric, baseline, candidate=candidate, groups=np.arange(len(baseline)), **how)


@pytest.fixture
def accuracy():
    return METRICS.make("accuracy")


@given(st.integers(0, 200), st.integers(0, 30), st.integers(0, 30), st.integers(0, 50), st.floats(0, 0.2), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_decision_follows_from_the_bounds(both, lost, won, neither, max_drop, relative):  # noqa: PLR0917 - hypothesis fills them
    baseline, candidate = cells(both + 1, lost, won, neither)
    verdict = judge(METRICS.make("accuracy"), baseline, candidate, max_drop=max_drop, relative=relative)
    assert verdict.drop_lower <= verdict.drop <= verdict.drop_upper
    wanted = "pass" if verdict.drop_upper <= max_drop else "fail" if verdict.drop_lower > max_drop else "inconclusive"
    assert verdict.decision == wanted
    assert verdict.needed is None or (wanted == "inconclusive" and verdict.needed > 0)
    assert verdict.to_json()


def test_a_proportion_has_the_exact_bounds_of_its_counts(accuracy):
    verdict = judge(accuracy, *cells(180, 8, 3, 9), max_drop=0.01)
    assert (verdict.drop_lower, verdict.drop_upper) == drop_bounds(Counts(200, 8, 3), 0.95)
    assert (verdict.baseline, verdict.value, verdict.samples) == (188 / 200, 183 / 200, 200)
    assert verdict.drop == pytest.approx(5 / 200)
    assert "exact" in verdict.method


def test_298_equal_samples_do_not_prove_one_percent_but_300_do(accuracy):
    """(1 - 0.01)^n <= 0.05 from n = 299 on; the restricted nuisance costs at most one more."""
    assert judge(accuracy, *cells(298, 0, 0, 0), max_drop=0.01).decision == "inconclusive"
    assert judge(accuracy, *cells(300, 0, 0, 0), max_drop=0.01).decision == "pass"
    few = judge(accuracy, *cells(100, 0, 0, 0), max_drop=0.01)
    assert few.needed == pytest.approx(199, abs=2)


def test_as_many_more_samples_as_needed_decide_four_times_in_five(accuracy):
    """The promised chance is 80 %, by the normal law: no sum of n independent terms is further from that than 0.4748 E|x - m|^3 / (s^3 sqrt(n)).

    (Shevtsova's constant of the Berry-Esseen bound, 2011.) The draws come from the very shares that were seen; a gate that keeps to the promise
    leaves the counts below once in 250 simulations to either side.
    """
    draws, promised, seldom = 200, 0.8, 4e-3
    shares = np.array([850, 12, 6, 132])
    first = judge(accuracy, *cells(*shares), max_drop=0.012)
    assert first.decision == "inconclusive"
    n = 1000 + first.needed
    terms, chances = np.array([0, 1, -1, 0]), shares / 1000
    off = terms - chances @ terms
    law = 0.4748 * (chances @ np.abs(off) ** 3) / (chances @ off**2) ** 1.5 / np.sqrt(n)
    found = np.random.default_rng(0).multinomial(n, chances, size=draws)
    passed = sum(drop_bounds(Counts(int(d.sum()), int(d[1]), int(d[2])), 0.95)[1] <= 0.012 for d in found)
    assert 0 < law < 0.1
    assert binom.ppf(seldom, draws, promised) <= passed <= binom.isf(seldom, draws, promised + law)  # the law errs on the safe side


def test_at_the_margin_no_number_of_samples_helps(accuracy):
    verdict = judge(accuracy, *cells(85, 2, 1, 12), max_drop=0.01)
    assert (verdict.decision, verdict.needed) == ("inconclusive", None)


def test_a_clear_loss_fails(accuracy):
    verdict = judge(accuracy, *cells(700, 100, 10, 190), max_drop=0.01)
    assert verdict.decision == "fail"
    assert verdict.drop_lower > 0.05


def test_a_relative_bound_divides_by_a_bounded_baseline_and_covers(accuracy):
    """One-sided error over simulated pairs: true relative drop 0.04 / 0.5."""
    missed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        kind = rng.choice(4, size=150, p=[0.44, 0.06, 0.02, 0.48])
        counts = np.bincount(kind, minlength=4)
        verdict = judge(accuracy, *cells(*counts), max_drop=0.05, relative=True)
        assert verdict.drop == pytest.approx((counts[1] - counts[2]) / (counts[0] + counts[1]))
        missed += verdict.drop_upper < 0.08
    assert missed <= 0.05 * 60


def test_a_share_of_a_baseline_of_zero_is_refused(accuracy):
    with pytest.raises(DataError, match=r"baseline's value is 0\nhint: set relative: false"):
        judge(accuracy, *cells(0, 0, 5, 5), max_drop=0.01, relative=True)


def test_no_samples_are_refused(accuracy):
    with pytest.raises(DataError, match="no evaluation samples"):
        judge(accuracy, np.zeros((0, 1)), np.zeros((0, 1)), max_drop=0.01)


def test_predictions_that_are_not_finite_are_counted_and_refused(accuracy):
    baseline, candidate = cells(8, 1, 1, 0)
    candidate[3:5] = np.nan
    with pytest.raises(DataError, match="2 of 10 predictions of the candidate are not finite"):
        judge(accuracy, baseline, candidate, max_drop=0.01)


def test_records_that_do_not_pair_up_are_refused(accuracy):
    with pytest.raises(DataError, match=r"baseline \[10, 1\], candidate \[9, 1\]"):
        judge(accuracy, np.ones((10, 1)), np.ones((9, 1)), max_drop=0.01)


def test_rows_of_one_sample_are_no_independent_evidence(accuracy):
    """100 samples of 30 equal rows say no more than 100 samples."""
    one, other = cells(90, 4, 1, 5)
    once = judge(accuracy, one, other, max_drop=0.01)
    rows = gate(accuracy, np.repeat(one, 30, axis=0), candidate=np.repeat(other, 30, axis=0), groups=np.repeat(np.arange(100), 30), max_drop=0.01)
    assert rows.samples == 100
    assert "bootstrap" in rows.method
    assert rows.drop == pytest.approx(once.drop)
    assert rows.drop_upper - rows.drop == pytest.approx(once.drop_upper - once.drop, rel=0.25)


def test_lower_is_better_and_a_baseline_without_errors_can_be_lost():
    metric = METRICS.make("cer")
    baseline = np.array([[0.0, 10.0]] * 400)
    candidate = baseline.copy()
    candidate[::10, 0] = 5
    verdict = judge(metric, baseline, candidate, max_drop=0.01)
    assert (verdict.baseline, verdict.drop) == (0, pytest.approx(0.05))
    assert verdict.decision == "fail"
    assert judge(metric, candidate, baseline, max_drop=0.01).decision == "pass"
    with pytest.raises(DataError, match="baseline's value is 0"):
        judge(metric, baseline, candidate, max_drop=0.01, relative=True)


@pytest.mark.parametrize("shift", [0.05, -0.05])
def test_a_score_that_must_stay_fails_whichever_way_it_moves(shift):
    metric = METRICS.make("mean-score")
    scores = np.random.default_rng(0).uniform(0.2, 0.8, size=(500, 1))
    noise = 0.02 * np.random.default_rng(1).normal(size=(500, 1))
    moved = judge(metric, scores, scores + shift + noise, max_drop=0.02)
    assert moved.decision == "fail"
    assert moved.drop == pytest.approx(0.05, abs=0.005)
    assert 0.02 < moved.drop_lower < moved.drop < moved.drop_upper
    still = judge(metric, scores, scores + noise, max_drop=0.02)
    assert (still.decision, still.drop_lower) == ("pass", 0)


def test_identical_records_of_few_samples_are_not_certain():
    """Whatever the metric: a few equal samples prove nothing about a small drop."""
    for kind, rows in (("mae", [[0.1], [0.2], [0.4]]), ("mae", [[0.0]] * 3), ("cer", [[0, 5.0]] * 3), ("pearson", [[i, i * i] for i in range(8)])):
        records = np.array(rows, dtype=np.float64)
        verdict = judge(METRICS.make(kind), records, records, max_drop=0.01)
        assert verdict.decision == "inconclusive", kind
        assert verdict.needed is None or verdict.needed > 0


def test_relative_drops_of_other_metrics_are_ratios_within_each_resample():
    """A loss that is 10 % higher for every sample is 10 % higher in every resample, so only the floor is left around it."""
    metric = METRICS.make("log-loss")
    baseline = np.random.default_rng(0).exponential(size=(2000, 1))
    verdict = judge(metric, baseline, 1.1 * baseline, max_drop=0.05, relative=True)
    assert verdict.decision == "fail"
    assert verdict.drop == pytest.approx(0.1)
    assert verdict.drop_lower > 0.09
    assert verdict.drop_upper < 0.11


def test_the_same_seed_gives_the_same_bytes_and_another_seed_nearly_the_same():
    metric = METRICS.make("mae")
    rng = np.random.default_rng(3)
    baseline = rng.exponential(size=(300, 1))
    candidate = baseline + rng.normal(0.05, 0.5, size=(300, 1))
    first, again, other = (judge(metric, baseline, candidate, max_drop=0.1, seed=s) for s in (1, 1, 2))
    assert first.to_json() == again.to_json()
    assert other.drop_upper != first.drop_upper
    assert other.drop_upper == pytest.approx(first.drop_upper, abs=0.01)
