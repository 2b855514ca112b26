import numpy as np
import pytest

from evaluators import METRICS
from quant.errors import DataError


@pytest.mark.parametrize("ties", [False, True])
def test_values_are_scipys(ties):
    from scipy.stats import pearsonr, spearmanr

    rng = np.random.default_rng(5)
    labels = rng.normal(size=120)
    scores = labels + rng.normal(size=120)
    if ties:
        labels, scores = np.round(labels), np.round(2 * scores)
    records = np.stack([scores, labels], 1)
    assert METRICS.make("spearman").value(records) == pytest.approx(spearmanr(scores, labels).statistic, rel=1e-12)
    assert METRICS.make("pearson").value(records) == pytest.approx(pearsonr(scores, labels).statistic, rel=1e-12)


def test_a_pair_is_scored_by_the_cosine_of_its_embeddings():
    outputs = [{"e": np.float32([3, 4])}, {"e": np.float32([4, 3])}]
    assert METRICS.make("spearman", {"pair": True}).record(outputs, 7.5) == pytest.approx(np.array([[24 / 25, 7.5]]))


def test_what_is_no_pair_is_refused():
    metric = METRICS.make("pearson", {"pair": True})
    with pytest.raises(DataError, match="a pair has two feeds, this sample has 1"):
        metric.record([{"e": np.zeros(3)}], 1.0)
    with pytest.raises(DataError, match="have 3 and 4 numbers"):
        metric.record([{"e": np.zeros(3)}, {"e": np.zeros(4)}], 1.0)


def test_a_constant_side_has_no_correlation():
    for kind in ("pearson", "spearman"):
        with pytest.raises(DataError, match="here are 4 of which one side is constant"):
            METRICS.make(kind).value(np.array([[0.1, 1], [0.1, 2], [0.1, 3], [0.1, 4]]))


def test_a_text_is_no_number():
    with pytest.raises(DataError, match="'good' is not a number"):
        METRICS.make("spearman").check_label("good")
    with pytest.raises(DataError, match="not finite"):
        METRICS.make("spearman").check_label(float("nan"))
