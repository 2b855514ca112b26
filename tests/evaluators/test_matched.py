import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.matched import Counts, drop_bounds, drop_upper, proportion_bounds, tango_statistic, tango_upper


def tables(n):
    return [(b, c) for b in range(n + 1) for c in range(n + 1 - b)]


def probability(n, b, c, p_b, p_c):
    ways = math.factorial(n) // (math.factorial(b) * math.factorial(c) * math.factorial(n - b - c))
    return ways * p_b**b * p_c**c * max(1 - p_b - p_c, 0.0) ** (n - b - c)


@pytest.fixture(scope="module")
def uppers():
    return {n: {t: drop_upper(Counts(n, *t), 0.95) for t in tables(n)} for n in (10, 20)}


@pytest.mark.parametrize("n", [10, 20, pytest.param(30, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.slow)])
def test_the_upper_bound_misses_a_true_drop_at_most_as_often_as_promised(uppers, n):
    if n not in uppers:
        uppers[n] = {t: drop_upper(Counts(n, *t), 0.95) for t in tables(n)}
    for drop, extra in itertools.product((-0.1, 0.0, 0.01, 0.05, 0.1, 0.2, 0.4), (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.3)):
        p_b, p_c = max(drop, 0) + extra, max(-drop, 0) + extra
        missed = sum(probability(n, b, c, p_b, p_c) for (b, c), upper in uppers[n].items() if upper < drop)
        assert missed <= 0.05, (drop, extra)


def test_the_bound_is_not_needlessly_wide(uppers):
    """Where disagreements are not rare, an error near the promised one is used up."""
    missed = [sum(probability(20, b, c, extra + 0.1, extra) for (b, c), u in uppers[20].items() if u < 0.1) for extra in np.linspace(0.05, 0.4, 15)]
    assert max(missed) > 0.035


@pytest.mark.parametrize("n", [10, 20])
def test_the_bound_grows_with_lost_samples_and_shrinks_with_won_ones(uppers, n):
    for (b, c), upper in uppers[n].items():
        if b + c < n:
            assert uppers[n][b + 1, c] >= upper - 1e-4
            assert uppers[n][b, c + 1] <= upper + 1e-4


@pytest.mark.parametrize("table", [(0, 0), (1, 0), (3, 1), (2, 6), (12, 0), (5, 5)], ids=str)
def test_the_bound_is_where_brute_force_over_all_tables_reaches_alpha(table):
    n, alpha = 12, 0.05
    limit = {t: tango_upper(Counts(n, *t), 1 - alpha) for t in tables(n)}
    before = [t for t in limit if limit[t] <= limit[table] + 1e-9]
    beta = alpha / 500
    low, high = proportion_bounds(sum(table), n, beta)

    def p_value(drop):
        psis = np.linspace(max(low, abs(drop)), max(high, abs(drop)), 1500)
        total = sum(
            math.factorial(n) / (math.factorial(b) * math.factorial(c) * math.factorial(n - b - c))
            * ((psis + drop) / 2) ** b * ((psis - drop) / 2).clip(0) ** c * (1 - psis).clip(0) ** (n - b - c)
            for b, c in before
        )  # fmt: skip
        return total.max() + beta

    upper = drop_upper(Counts(n, *table), 1 - alpha)
    if upper == 1:
        assert table == (12, 0)
        return
    assert p_value(upper) <= alpha + 1e-9
    assert p_value(upper - 1e-4) > alpha


@given(st.integers(1, 500), st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.8, 0.95, 0.99]))
@settings(max_examples=25, deadline=None)
def test_bounds_enclose_the_observed_drop_and_mirror_each_other(n, lost, won, confidence):
    b = int(lost * n)
    counts = Counts(n, b, int(won * (n - b)))
    low, high = drop_bounds(counts, confidence)
    assert -1 <= low <= counts.drop <= high <= 1
    other_low, other_high = drop_bounds(Counts(n, counts.c, counts.b), confidence)
    assert (other_low, other_high) == (-high, -low)


@pytest.mark.parametrize(("b", "c", "n", "low", "high"), [(1, 7, 21, -0.517, -0.026)], ids=["airway hyper-responsiveness, Fagerland et al. 2014"])
def test_tango_limits_are_the_published_ones(b, c, n, low, high):
    assert tango_upper(Counts(n, b, c), 0.975) == pytest.approx(high, abs=5e-4)
    assert -tango_upper(Counts(n, c, b), 0.975) == pytest.approx(low, abs=5e-4)


@pytest.mark.parametrize("drop", [-0.4, -0.05, 0.02, 0.3])
@pytest.mark.parametrize(("b", "c"), [(0, 0), (4, 0), (0, 4), (7, 3), (10, 20)])
def test_tango_statistic_uses_the_likeliest_nuisance(b, c, drop):
    n = 40
    p_c = np.linspace(max(-drop, 0), (1 - drop) / 2, 200_001)[1:-1]
    likelihood = b * np.log(p_c + drop) + c * np.log(p_c) + (n - b - c) * np.log1p(-2 * p_c - drop)
    best = p_c[np.argmax(likelihood)]
    wanted = (b - c - n * drop) / math.sqrt(n * (2 * best + drop * (1 - drop)))
    assert float(tango_statistic(b, c, n, drop)) == pytest.approx(wanted, rel=1e-3)


def test_no_difference_among_n_gives_the_rule_of_three():
    for n in (20, 299, 10_000, 200_000):
        low, high = drop_bounds(Counts(n, 0, 0), 0.95)
        # P(nothing lost) = (1 - drop)^n; the Berger-Boos share of alpha widens it a little.
        wanted = 1 - 0.05 ** (1 / n)
        assert wanted <= high <= 1.002 * wanted
        assert low == -high


def test_many_disagreements_use_an_interval_that_the_exact_one_approaches():
    below, above = Counts(100_000, 2600, 2400), Counts(100_000, 2601, 2400)
    assert below.is_exact
    assert not above.is_exact
    width = drop_upper(below, 0.95) - below.drop
    assert drop_upper(above, 0.95) - above.drop == pytest.approx(width, rel=0.01)


def test_clopper_pearson_is_scipys():
    from scipy.stats import binomtest

    for successes in (0, 3, 20):
        wanted = binomtest(successes, 20).proportion_ci(0.95, method="exact")
        assert proportion_bounds(successes, 20, 0.05) == pytest.approx((wanted.low, wanted.high), rel=1e-9)
