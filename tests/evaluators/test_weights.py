import numpy as np
import pytest

from evaluators.weights import weighted_correlation, weighted_counts, weighted_mean, weighted_ranks


def test_ranks_are_scipys_mean_ranks_less_a_half_also_when_rows_are_repeated():
    from scipy.stats import rankdata

    rng = np.random.default_rng(0)
    column = rng.integers(0, 6, 30).astype(float)
    assert weighted_ranks(column, np.ones((1, 30)))[0] == pytest.approx(rankdata(column) - 0.5)
    counts = rng.integers(1, 4, 30)
    repeated = rankdata(np.repeat(column, counts)) - 0.5
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    assert weighted_ranks(column, counts[None].astype(float))[0] == pytest.approx(repeated[first])


def test_counts_mean_and_correlation_follow_the_weights():
    weights = np.array([[1.0, 1, 1], [0, 2, 1]])
    assert weighted_counts(np.array([2, 0, 2]), weights, 4).tolist() == [[1, 0, 2, 0], [2, 0, 1, 0]]
    assert weighted_mean(np.array([1.0, 2, 6]), weights).tolist() == [3, 10 / 3]
    rows = np.array([1.0, 2, 2, 6]), np.array([3.0, 1, 1, 5])
    found = weighted_correlation(np.array([1.0, 2, 6]), np.array([3.0, 1, 5]), np.array([[1.0, 2, 1]]))
    assert found[0] == pytest.approx(np.corrcoef(*rows)[0, 1])


def test_a_constant_has_no_correlation_whatever_its_rounding():
    column = np.full(1000, 0.1)
    assert np.isnan(weighted_correlation(column, np.arange(1000.0), np.ones((1, 1000))))
    assert weighted_correlation(1e6 + np.arange(10) * 1e-3, np.arange(10.0), np.ones((1, 10)))[0] == pytest.approx(1, abs=1e-6)
