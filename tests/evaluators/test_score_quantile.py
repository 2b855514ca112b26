import numpy as np
import pytest

from evaluators import METRICS


@pytest.mark.parametrize("quantile", [0.01, 0.5, 0.9, 0.99])
def test_the_quantile_is_numpys_inverse_of_the_distribution(quantile):
    scores = np.random.default_rng(0).normal(size=(137, 1))
    metric = METRICS.make("score-quantile", {"quantile": quantile})
    assert metric.value(scores) == np.quantile(scores, quantile, method="inverted_cdf")


def test_the_ninth_of_ten_is_the_0_9_quantile():
    assert METRICS.make("score-quantile", {"quantile": 0.9}).value(np.arange(1.0, 11)[:, None]) == 9
