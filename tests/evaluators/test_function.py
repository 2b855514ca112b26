import sys
import types

import numpy as np
import pytest

from evaluators import METRICS
from quant.errors import DataError, RecipeError


@pytest.fixture
def mine(monkeypatch):
    module = types.ModuleType("my_metrics")
    monkeypatch.setitem(sys.modules, "my_metrics", module)
    return module


def test_a_number_or_a_record_is_taken_and_valued_by_the_users_functions(mine):
    mine.record = lambda outputs, label: np.array([outputs[0]["y"].sum(), label])
    mine.ratio = lambda records: records[:, 0].sum() / records[:, 1].sum()
    metric = METRICS.make("function", {"function": "my_metrics:record", "value": "my_metrics:ratio", "direction": "lower", "unit": "rate"})
    records = np.concatenate([metric.record([{"y": np.ones(n)}], 4) for n in (2, 6)])
    assert records.tolist() == [[2, 4], [6, 4]]
    assert metric.value(records) == 1
    assert (metric.direction, metric.unit) == ("lower", "rate")
    assert (METRICS.get("function").direction, METRICS.get("function").unit) == ("higher", "score")


def test_a_missing_module_or_function_is_named():
    with pytest.raises(RecipeError, match="no module 'no_such_module', for 'no_such_module:f'"):
        METRICS.make("function", {"function": "no_such_module:f"})
    with pytest.raises(RecipeError, match=r"has no function 'is_rigt'\nhint: did you mean 'is_right'"):
        METRICS.make("function", {"function": "evaluators.function:is_rigt"})


def test_a_return_value_that_is_no_number_is_refused(mine):
    mine.bad = lambda *_: np.zeros((2, 2))
    mine.words = lambda *_: "good"
    for name, message in (("bad", r"returned float64 of shape \[2, 2\]"), ("words", "returned <U4")):
        with pytest.raises(DataError, match=message):
            METRICS.make("function", {"function": f"my_metrics:{name}"}).record([{}], 0)
    metric = METRICS.make("function", {"function": "evaluators.function:is_right", "value": "my_metrics:bad"})
    with pytest.raises(DataError, match="return one number"):
        metric.value(np.ones((3, 1)))


def test_an_error_inside_the_users_module_keeps_its_traceback(tmp_path, monkeypatch):
    (tmp_path / "broken_metric.py").write_text("import this_is_missing_too\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RecipeError, match="no module 'this_is_missing_too'"):
        METRICS.make("function", {"function": "broken_metric:f"})
    (tmp_path / "raising_metric.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        METRICS.make("function", {"function": "raising_metric:f"})
