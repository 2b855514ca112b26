"""GPTQ against the paper's first form: one column at a time, the inverse made anew for what is left."""

import numpy as np
import pytest

from quant.core.formats import INT4, UINT4, Params
from quant.core.rounding.blocks import BlockGrid, output_error
from quant.core.rounding.gptq import round_gptq
from quant.core.rounding.nearest import block_params, round_nearest

DAMPING = 0.01


def layer(seed, rows=4, columns=40):
    """A weight, and inputs whose channels are correlated and of very different size."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(300, columns)) @ rng.normal(size=(columns, columns)) * np.exp(rng.normal(size=columns))
    return rng.normal(size=(rows, columns)), inputs.T @ inputs / len(inputs)


def naive(weights, moments, form, *, by_activity):
    """Optimal brain quantization in a fixed order (the paper's equation 2), with no Cholesky factor anywhere."""
    left = weights.copy()
    damped = moments + np.eye(len(moments)) * DAMPING * np.diag(moments).mean()
    remaining = sorted(range(weights.shape[1]), key=lambda c: -moments[c, c]) if by_activity else list(range(weights.shape[1]))
    fixed = block_params(weights, form, search=False)
    codes, params = np.zeros(weights.shape, int), fixed if by_activity else {}
    while remaining:
        column, block = remaining[0], remaining[0] // form.size
        if not by_activity and column % form.size == 0:
            part = left[:, column : column + form.size]
            params[block] = form.grid.params(part.min(axis=1), part.max(axis=1))
        own = Params(fixed.scale[:, block], fixed.zero_point[:, block]) if by_activity else params[block]
        found = form.grid.quantize(left[:, column], own, 0)
        codes[:, column] = found.astype(int)
        inverse = np.linalg.inv(damped[np.ix_(remaining, remaining)])
        error = (left[:, column] - form.grid.dequantize(found, own, 0)) / inverse[0, 0]
        left[:, remaining] -= np.outer(error, inverse[0])
        remaining = remaining[1:]
    return codes


@pytest.mark.parametrize("by_activity", [False, True], ids=["in order", "by activity"])
@pytest.mark.parametrize("grid", [INT4, UINT4], ids=lambda g: g.name)
@pytest.mark.parametrize("seed", range(3))
def test_codes_are_those_of_the_papers_algorithm(grid, by_activity, seed):
    weights, moments = layer(seed)
    form = BlockGrid(grid, 16)
    found = round_gptq(weights, moments, form, damping=DAMPING, by_activity=by_activity)
    assert np.array_equal(found.codes.astype(int), naive(weights, moments, form, by_activity=by_activity))


@pytest.mark.parametrize("by_activity", [False, True], ids=["in order", "by activity"])
@pytest.mark.parametrize("seed", range(4))
def test_the_error_of_the_outputs_is_less_than_that_of_rounding_to_the_nearest(by_activity, seed):
    weights, moments = layer(seed, rows=32, columns=64)
    form = BlockGrid(INT4, 32)
    errors = [
        output_error(form.values(r) - weights, moments) for r in (round_gptq(weights, moments, form, by_activity=by_activity), round_nearest(weights, form))
    ]
    assert errors[0] < errors[1]


def test_inputs_that_have_nothing_to_do_with_one_another_leave_nothing_to_make_good():
    weights, _ = layer(0)
    form = BlockGrid(UINT4, 16)
    found = round_gptq(weights, np.diag(np.arange(1.0, 41.0)), form)
    assert np.array_equal(found.codes, round_nearest(weights, form).codes)


def test_inputs_that_are_always_zero_are_rounded_to_the_nearest():
    weights, _ = layer(0)
    form = BlockGrid(INT4, 16)
    assert np.array_equal(round_gptq(weights, np.zeros((40, 40)), form).codes, round_nearest(weights, form).codes)
