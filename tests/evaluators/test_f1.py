import numpy as np
import pytest

from evaluators import METRICS


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "binary"])
@pytest.mark.parametrize("classes", [2, 5])
def test_value_is_scikit_learns(average, classes):
    from sklearn.metrics import f1_score

    if average == "binary" and classes > 2:
        pytest.skip("binary is for two classes")
    rng = np.random.default_rng(2)
    labels = rng.integers(0, classes, 80)
    found = np.where(rng.random(80) < 0.6, labels, rng.integers(0, classes, 80))
    value = METRICS.make("f1", {"average": average}).value(np.stack([found, labels], 1).astype(float))
    assert value == pytest.approx(f1_score(labels, found, average=average, zero_division=0), rel=1e-12)


def test_classes_that_are_only_predicted_or_only_labels_count_as_zero():
    """Class 0: 2*1/(1+2); class 1 never predicted, class 2 never a label: 0. Mean of three."""
    assert METRICS.make("f1").value(np.array([[0.0, 0], [2, 0], [2, 1]])) == pytest.approx((2 / 3 + 0 + 0) / 3)


def test_binary_f1_without_any_positive_is_zero():
    assert METRICS.make("f1", {"average": "binary"}).value(np.zeros((5, 2))) == 0


def test_records_hold_prediction_and_label():
    outputs = [{"y": np.float32([[0, 3, 1], [2, 0, 0]])}]
    assert METRICS.make("f1").record(outputs, np.array([2, 0])).tolist() == [[1, 2], [0, 0]]
