"""AWQ: factors that help, and none where none can."""

import numpy as np
import pytest

from quant.core.formats import INT4
from quant.core.rounding.awq import POWERS, channel_scales
from quant.core.rounding.blocks import BlockGrid
from quant.core.rounding.nearest import round_nearest


def inputs_with_outliers(seed):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(400, 64)) * np.where(np.arange(64) % 16 == 3, 30.0, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_the_factors_are_the_best_of_those_tried_measured_on_the_inputs_themselves(seed):
    rng, inputs = inputs_with_outliers(seed)
    weights = [rng.normal(size=(8, 64)), rng.normal(size=(4, 64))]
    form = BlockGrid(INT4, 32)
    factors, left = channel_scales(weights, inputs.T @ inputs / 400, form)

    def error(scale):
        return sum(np.square(inputs @ (form.values(round_nearest(w * scale, form)) / scale - w).T).sum() for w in weights)

    level = np.sqrt(np.square(inputs).mean(axis=0))
    tried = [(level**power) / np.sqrt((level**power).max() * (level**power).min()) for power in POWERS]
    assert left == pytest.approx(error(factors) / error(1.0), rel=1e-9)
    # The factors are rounded to 16ths of an octave, which moves a weight by up to 2 % of itself, far less than a step.
    assert error(factors) <= 1.1 * min(error(t) for t in tried)
    assert left < 0.5


def test_channels_of_one_size_get_no_factor():
    rng = np.random.default_rng(0)
    factors, left = channel_scales([rng.normal(size=(8, 32))], np.eye(32), BlockGrid(INT4, 32))
    assert (set(factors), left) == ({1.0}, 1.0)


def test_a_channel_that_is_always_zero_has_a_finite_factor():
    _, inputs = inputs_with_outliers(1)
    inputs[:, 5] = 0
    factors, _ = channel_scales([np.random.default_rng(3).normal(size=(8, 64))], inputs.T @ inputs / 400, BlockGrid(INT4, 32))
    assert np.isfinite(factors).all()
    assert (factors > 0).all()
