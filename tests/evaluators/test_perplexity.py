"""Perplexity by hand."""

import math

import numpy as np
import pytest

from evaluators import METRICS
from evaluators.gate import gate
from quant.errors import DataError


def logits(*probabilities):
    """Logits of tokens 0, 1, 2, ... with these probabilities, a row a step."""
    return [{"logits": np.log(np.asarray(probabilities, np.float64)) + 7}]  # a softmax does not see what is added to all


@pytest.fixture
def metric():
    return METRICS.make("perplexity")


def test_it_is_the_inverse_of_the_geometric_mean_of_the_probabilities(metric):
    # The label's probabilities are 1/2, 1/4 and 1/8: in the geometric mean 1/4.
    found = metric.record(logits([0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.125, 0.125, 0.75]), np.array([0, 1, 1]))
    assert found.tolist() == [[pytest.approx(6 * math.log(2)), 3]]
    assert metric.value(found) == pytest.approx(4, rel=1e-12)


def test_every_token_has_the_same_weight_whatever_the_length_of_its_window(metric):
    short = metric.record(logits([0.5, 0.5]), np.array([0]))
    long = metric.record(logits(*[[1 / 32, 31 / 32]] * 4), np.zeros(4, int))
    # -log2 of the probabilities: 1 once and 5 four times, 21 / 5 on average; the mean over windows would be 3.
    assert metric.value(np.concatenate([short, long])) == pytest.approx(2 ** (21 / 5), rel=1e-12)
    assert metric.weighted(np.concatenate([short, long]), np.array([[1.0, 1.0], [3.0, 0.0], [2.0, 1.0]])) == pytest.approx([2**4.2, 2, 2 ** (22 / 6)])


def test_a_uniform_guess_hesitates_between_all_tokens_and_certainty_between_one(metric):
    assert metric.value(metric.record([{"logits": np.zeros((5, 32))}], np.arange(5))) == pytest.approx(32)
    assert metric.value(metric.record([{"logits": 1000 * np.eye(3, dtype=np.float32)}], np.arange(3))) == 1


def test_what_no_float_holds_is_infinite_without_a_warning(metric):
    records = metric.record([{"logits": np.array([[0.0, 800.0]])}], np.array([0]))
    assert records.tolist() == [[800, 1]]
    assert metric.value(records) == math.inf
    assert metric.weighted(records, np.ones((1, 1))).tolist() == [math.inf]


def test_windows_are_the_samples_that_the_gate_draws_from(metric):
    rng = np.random.default_rng(3)
    tokens = rng.integers(50, 100, 24)
    base = np.stack([tokens * rng.normal(3, 0.2, 24), tokens], axis=1)
    worse = base * [[1.01, 1]]
    verdict = gate(metric, base, candidate=worse, groups=np.arange(24), max_drop=0.2, relative=True)
    exact = base[:, 0].sum() / tokens.sum()
    assert verdict.samples == 24
    assert verdict.drop == pytest.approx(math.exp(0.01 * exact) - 1, rel=1e-9)
    assert verdict.decision == "pass"
    assert verdict.drop < verdict.drop_upper < 0.2


def test_logits_for_the_last_step_alone_are_refused(metric):
    with pytest.raises(DataError, match=r"output of shape \[9\] does not go with 3 label\(s\)"):
        metric.record([{"logits": np.zeros(9)}], np.array([1, 2, 3]))
