import numpy as np
import pytest

from evaluators import METRICS
from quant.errors import DataError


@pytest.mark.parametrize("ties", [False, True])
def test_value_is_scikit_learns(ties):
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(3)
    labels = rng.random(200) < 0.3
    scores = rng.normal(size=200) + labels
    scores = np.round(scores) if ties else scores
    value = METRICS.make("auc").value(np.stack([scores, labels], 1))
    assert value == pytest.approx(roc_auc_score(labels, scores), rel=1e-12)


def test_hand_counted_pairs():
    """Positives 0.8 and 0.4, negatives 0.4 and 0.1: three wins and a tie of four pairs."""
    assert METRICS.make("auc").value(np.array([[0.8, 1], [0.4, 1], [0.4, 0], [0.1, 0]])) == 3.5 / 4


def test_two_columns_rank_alike_as_logits_and_as_probabilities():
    metric, rng = METRICS.make("auc"), np.random.default_rng(4)
    logits = rng.normal(size=(40, 2))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = rng.integers(0, 2, 40)
    values = [metric.value(np.concatenate([metric.record([{"y": x}], int(y)) for x, y in zip(rows, labels, strict=True)])) for rows in (logits, shares)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_several_columns_need_a_name():
    outputs = [{"y": np.array([0.0, 1.0, 3.0])}]
    with pytest.raises(DataError, match="3 scores a row and no column named"):
        METRICS.make("auc").record(outputs, 1)
    assert METRICS.make("auc", {"column": 2, "apply": "softmax"}).record(outputs, 1)[0, 0] == pytest.approx(0.84379473, rel=1e-7)
    with pytest.raises(DataError, match="column 3 but 3 scores"):
        METRICS.make("auc", {"column": 3}).record(outputs, 1)


def test_a_sequence_has_a_row_for_each_step():
    steps = [{"p": np.float32([[0.1]])}, {"p": np.float32([[0.9]])}]
    assert METRICS.make("auc").record(steps, np.array([0, 1])) == pytest.approx(np.array([[0.1, 0], [0.9, 1]]))


def test_one_class_alone_and_labels_beyond_two_classes_are_refused():
    with pytest.raises(DataError, match="all 3 labels are 1"):
        METRICS.make("auc").value(np.array([[0.1, 1], [0.2, 1], [0.3, 1]]))
    with pytest.raises(DataError, match="label 2 is neither 0 nor 1"):
        METRICS.make("auc").check_label(np.array([0, 2]))
