import numpy as np
import pytest

from evaluators import METRICS
from quant.errors import DataError


def rows(kind, outputs, labels, **options):
    metric = METRICS.make(kind, options)
    return metric, np.concatenate([metric.record([{"y": x}], int(y)) for x, y in zip(outputs, labels, strict=True)])


@pytest.mark.parametrize("of", ["logits", "probabilities"])
def test_value_is_scikit_learns(of):
    from sklearn.metrics import log_loss

    rng = np.random.default_rng(6)
    logits, labels = 3 * rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    metric, records = rows("log-loss", logits if of == "logits" else shares, labels, of=of)
    assert metric.value(records) == pytest.approx(log_loss(labels, shares, labels=range(4)), rel=1e-12)


def test_one_score_a_row_is_that_of_class_one():
    _, records = rows("log-loss", [np.array([np.log(3)])] * 2, [1, 0])
    assert records[:, 0] == pytest.approx([-np.log(0.75), -np.log(0.25)])
    assert rows("log-loss", [np.array([0.75])] * 2, [1, 0], of="probabilities")[1] == pytest.approx(records)


def test_a_sure_mistake_costs_a_finite_amount():
    assert rows("log-loss", [np.float32([1, 0])], [1], of="probabilities")[1][0, 0] == pytest.approx(-np.log(2.0**-23))


def test_logits_given_as_probabilities_are_refused():
    with pytest.raises(DataError, match=r"-1 to 2 are no probabilities\nhint: set of: logits"):
        rows("log-loss", [np.array([2.0, -1.0])], [0], of="probabilities")
