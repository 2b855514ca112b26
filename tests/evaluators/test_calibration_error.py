import numpy as np
import pytest

from evaluators import METRICS


def test_the_error_is_that_of_bins_of_equal_mass_by_hand():
    """Two bins of two rows: |(1 + 0) / 2 - (0.5 + 0.6) / 2| = 0.05 and |1 - (0.8 + 0.9) / 2| = 0.15; their mean is 0.1."""
    metric = METRICS.make("calibration-error", {"bins": 2, "of": "probabilities"})
    records = np.array([[0.9, 1.0], [0.5, 1.0], [0.6, 0.0], [0.8, 1.0]])
    assert metric.value(records) == pytest.approx(0.1)


def test_records_are_the_largest_probability_and_whether_it_is_right():
    metric = METRICS.make("calibration-error")
    logits = np.log(np.array([0.2, 0.7, 0.1], dtype=np.float32))
    assert metric.record([{"logits": logits}], 1) == pytest.approx(np.array([[0.7, 1.0]]), abs=1e-6)
    assert metric.record([{"logits": logits}], 0) == pytest.approx(np.array([[0.7, 0.0]]), abs=1e-6)


def test_honest_confidences_have_little_error_and_doubled_logits_much():
    """Labels are drawn from the very probabilities. What is left is the noise of 15 bins of 1333 rows: at most about 0.4 / sqrt(1333) = 1.1 % each."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 4))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (rng.random((20_000, 1)) > np.cumsum(shares, axis=1)).sum(axis=1)
    metric = METRICS.make("calibration-error")
    honest, loud = (np.concatenate([metric.record([{"z": k * z}], y) for z, y in zip(logits, labels, strict=True)]) for k in (1, 2))
    assert metric.value(honest) < 0.015
    assert metric.value(loud) > 0.1
