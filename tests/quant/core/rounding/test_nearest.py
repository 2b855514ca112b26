"""Rounding to the nearest, by hand and against trying every share."""

import numpy as np
import pytest

from quant.core.formats import INT4, UINT4
from quant.core.rounding.blocks import BlockGrid
from quant.core.rounding.nearest import SHARES, block_params, round_nearest


def test_codes_by_hand():
    form = BlockGrid(INT4, 16)
    weights = np.zeros((1, 20))
    weights[0, :3], weights[0, 16] = [7.0, -3.5, 2.6], -1.4
    found = round_nearest(weights, form)
    assert found.params.scale.tolist() == [[1.0, np.float32(0.2)]]
    assert found.codes.astype(int)[0, [0, 1, 2, 16]].tolist() == [7, -4, 3, -7]


@pytest.mark.parametrize("grid", [INT4, UINT4], ids=lambda g: g.name)
@pytest.mark.parametrize("with_moments", [False, True], ids=["weights", "products"])
def test_the_search_finds_the_best_share_of_every_block(grid, with_moments):
    rng = np.random.default_rng(1)
    weights = rng.standard_t(3, size=(5, 40))
    inputs = rng.normal(size=(90, 40)) @ rng.normal(size=(40, 40))
    moments = inputs.T @ inputs / 90 if with_moments else None
    form = BlockGrid(grid, 16)
    found = block_params(weights, form, search=True, moments=moments)

    def error(row, part, params):
        difference = grid.dequantize(grid.quantize(weights[row, part], params), params) - weights[row, part]
        return np.mean(np.square(inputs[:, part] @ difference)) if with_moments else np.square(difference).sum()

    for row in range(5):
        for block in range(3):
            part = slice(16 * block, 16 * block + 16)
            own = weights[row, part]
            tried = [grid.params(own.min() * share, own.max() * share) for share in SHARES]
            least = min(error(row, part, params) for params in tried)
            chosen = type(tried[0])(found.scale[row, block], found.zero_point[row, block])
            assert error(row, part, chosen) == pytest.approx(least, rel=1e-9)


def test_without_a_search_nothing_is_cut():
    weights = np.random.default_rng(2).standard_t(2, size=(4, 64))
    form = BlockGrid(INT4, 32)
    assert np.abs(weights).max() == pytest.approx(np.abs(form.values(round_nearest(weights, form))).max(), rel=1e-6)
