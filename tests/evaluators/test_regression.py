import numpy as np
import pytest

from evaluators import METRICS
from quant.errors import DataError


@pytest.mark.parametrize(("kind", "function"), [("mae", "mean_absolute_error"), ("rmse", "root_mean_squared_error")])
def test_values_are_scikit_learns(kind, function):
    import sklearn.metrics

    rng = np.random.default_rng(7)
    labels, found = rng.normal(size=30), rng.normal(size=30)
    metric = METRICS.make(kind)
    records = np.concatenate([metric.record([{"y": np.array([x])}], float(y)) for x, y in zip(found, labels, strict=True)])
    assert metric.value(records) == pytest.approx(getattr(sklearn.metrics, function)(labels, found), rel=1e-12)


def test_an_array_label_is_compared_number_by_number():
    assert METRICS.make("mae").record([{"y": np.array([[1.0, 4.0]])}], np.array([2.0, 2.0])).tolist() == [[1.5]]
    with pytest.raises(DataError, match=r"output of shape \[2\] against a label of shape \[3\]"):
        METRICS.make("rmse").record([{"y": np.zeros(2)}], np.zeros(3))
