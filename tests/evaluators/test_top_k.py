import numpy as np
import pytest

from evaluators import METRICS
from quant.errors import DataError


def hit(scores, label, k):
    return METRICS.make("top-k", {"k": k}).record([{"y": np.float32(scores)}], label)[0, 0]


def test_a_label_counts_when_fewer_than_k_scores_come_before_it():
    scores = [0.1, 0.5, 0.3, 0.05, 0.05]
    assert [hit(scores, 0, k) for k in (1, 2, 3)] == [0, 0, 1]
    assert [hit(scores, 1, k) for k in (1, 2)] == [1, 1]


def test_of_equal_scores_the_lower_class_comes_first_as_in_argmax():
    assert [hit([1, 1, 0], label, 1) for label in (0, 1)] == [1, 0]
    assert hit([1, 1, 1], 2, 2) == 0


def test_value_is_scikit_learns():
    from sklearn.metrics import top_k_accuracy_score

    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=(60, 7)).astype(np.float32), rng.integers(0, 7, 60)
    found = np.mean([hit(s, int(y), 3) for s, y in zip(scores, labels, strict=True)])
    assert found == top_k_accuracy_score(labels, scores, k=3, labels=range(7))


def test_a_k_beyond_the_classes_is_refused():
    with pytest.raises(DataError, match="k is 5 but the output has 3"):
        hit([1, 2, 3], 0, 5)
