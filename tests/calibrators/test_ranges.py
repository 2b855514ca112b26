import numpy as np
import pytest

from calibrators import CALIBRATORS
from calibrators.ranges import ranges
from quant.core.formats import INT8, UINT8, Range
from quant.core.statistics import TensorStatistics
from quant.errors import CalibrationError


def test_every_tensor_gets_its_range_in_order_whatever_the_number_of_workers():
    r = np.random.default_rng(0)
    seen = {f"t{i}": TensorStatistics.of(r.normal(size=1000).astype(np.float32)) for i in (3, 1, 2)}
    calibrator = CALIBRATORS.make("mse")
    one, four = ranges(seen, calibrator, INT8, 1), ranges(seen, calibrator, INT8, 4)
    assert list(one) == ["t3", "t1", "t2"]
    assert list(one.items()) == list(four.items())


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_names_the_tensor(workers):
    seen = {"good": TensorStatistics.of(np.ones(3, np.float32)), "encoder/MatMul_3": TensorStatistics()}
    with pytest.raises(CalibrationError, match=r"^encoder/MatMul_3: no values were seen\nhint: "):
        ranges(seen, CALIBRATORS.make("minmax"), UINT8, workers)


def test_no_tensors_give_no_ranges():
    assert ranges({}, CALIBRATORS.make("minmax"), INT8, 2) == {}


def test_min_max_is_the_extremes_on_every_grid():
    statistics = TensorStatistics.of(np.float32([-1.5, 0, 7.25]))
    assert ranges({"x": statistics}, CALIBRATORS.make("minmax"), INT8) == {"x": Range(-1.5, 7.25)}
