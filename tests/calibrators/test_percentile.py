import numpy as np
import pytest
from pydantic import ValidationError

from calibrators import CALIBRATORS
from quant.core.formats import INT8, UINT8
from quant.core.statistics import RELATIVE_BIN_WIDTH, TensorStatistics


def close(found, truth):
    """Within a bin of the truth: a bin is never wider than this share of what is in it."""
    return abs(found - truth) <= abs(truth) * RELATIVE_BIN_WIDTH + 2.0**-135


@pytest.mark.parametrize("percentile", [60, 95, 99, 99.9, 99.99, 100])
def test_a_symmetric_threshold_is_numpys_percentile_of_magnitudes(values, percentile):
    low, high = CALIBRATORS.make("percentile", {"percentile": percentile}).range(TensorStatistics.of(values), INT8)
    truth = np.percentile(np.abs(values), percentile, method="inverted_cdf")
    assert close(max(-low, high), truth)
    assert close(low, max(-truth, values.min()))
    assert close(high, min(truth, values.max()))


@pytest.mark.parametrize("percentile", [60, 95, 99, 99.9, 99.99, 100])
def test_an_asymmetric_range_gives_up_half_of_the_rest_on_each_side(values, percentile):
    low, high = CALIBRATORS.make("percentile", {"percentile": percentile}).range(TensorStatistics.of(values), UINT8)
    rest = (100 - percentile) / 2
    assert close(low, np.percentile(values, rest, method="inverted_cdf"))
    assert close(high, np.percentile(values, 100 - rest, method="inverted_cdf"))


def test_one_hundred_is_min_max(values):
    statistics = TensorStatistics.of(values)
    assert CALIBRATORS.make("percentile", {"percentile": 100}).range(statistics, UINT8) == (values.min(), values.max())


@pytest.mark.parametrize("percentile", [50, 0, -1, 100.5, float("nan"), "most"])
def test_a_percentile_that_keeps_half_or_less_or_more_than_all_is_refused(percentile):
    with pytest.raises(ValidationError, match="percentile"):
        CALIBRATORS.make("percentile", {"percentile": percentile})
