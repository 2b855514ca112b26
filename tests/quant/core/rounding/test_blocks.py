"""Blocks of a weight against plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.core.formats import INT4, UINT4
from quant.core.rounding.blocks import BlockGrid, output_error


@pytest.mark.parametrize("kind", [np.float32, np.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("grid", [INT4, UINT4], ids=lambda g: g.name)
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_values_are_the_nearest_that_the_grid_has_and_lie_within_half_a_step_where_it_reaches(grid, kind, data):
    columns, size = data.draw(st.integers(1, 40)), data.draw(st.sampled_from([16, 32]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weights = rng.normal(size=(3, columns)) * 10.0 ** data.draw(st.integers(-6, 3))
    form = BlockGrid(grid, size, kind)
    params = form.params(*form.extremes(weights))
    rounded = form.round(weights, params)
    assert np.array_equal(params.scale.astype(kind).astype(np.float32), params.scale)
    assert np.array_equal(form.values(rounded), form.nearest(weights, params))
    for row in range(3):
        for column in range(columns):
            scale, zero = (float(a[row, column // size]) for a in (params.scale, params.zero_point))
            candidates = [np.float32(np.float64(np.float32(scale)) * (code - zero)) for code in range(grid.low, grid.high + 1)]
            found = form.values(rounded)[row, column]
            exact = np.abs(np.array(candidates, np.float64) - weights[row, column]).min()
            assert abs(found - weights[row, column]) <= exact * (1 + 1e-6) + scale * 1e-6


def test_a_scale_that_vanishes_in_fp16_stays_above_zero():
    form = BlockGrid(INT4, 16, np.float16)
    assert form.params(np.array([[-1e-9]]), np.array([[1e-9]])).scale.tolist() == [[2.0**-24]]


def test_the_error_of_outputs_is_that_of_the_products_themselves():
    rng = np.random.default_rng(0)
    inputs, difference = rng.normal(size=(50, 6)), rng.normal(size=(4, 6))
    found = output_error(difference, inputs.T @ inputs / 50)
    assert found == pytest.approx(np.square(inputs @ difference.T).sum(axis=1).mean(), rel=1e-12)
