"""Rounding to the nearest code, with the range of each block as it is, or cut where that makes the block's error less."""

from __future__ import annotations

import numpy as np

from quant.core.formats import Params
from quant.core.rounding.blocks import BlockGrid, Doubles, Rounded

SHARES = tuple(float(share) for share in np.arange(100, 49, -2) / 100)
"""Shares of a block's range that are tried, the whole range first."""


def round_nearest(weights: Doubles, form: BlockGrid, *, search: bool = False, moments: Doubles | None = None) -> Rounded:
    """The nearest codes of `weights`.

    Args:
        weights: float64 `[out, in]`.
        form: Grid and block size.
        search: Cut the range of each block to the share that makes its error least; otherwise it is the block's own.
        moments: Second moments of what the weights multiply, float64 `[in, in]`: the error is then that of the products within
            the block, otherwise that of the weights.

    Example:
        >>> from quant.core.formats import INT4
        >>> form = BlockGrid(INT4, 16)
        >>> form.values(round_nearest(np.array([[0.7, 0.33, -0.1]]), form)).round(2).tolist()
        [[0.7, 0.3, -0.1]]
    """
    return form.round(weights, block_params(weights, form, search=search, moments=moments))


def block_params(weights: Doubles, form: BlockGrid, *, search: bool, moments: Doubles | None = None) -> Params:
    """Scale and zero point of every block of `weights` (see `round_nearest`)."""
    low, high = form.extremes(weights)
    best = form.params(low, high)
    if not search:
        return best
    least = _errors(weights, best, form, moments)
    for share in SHARES[1:]:
        tried = form.params(low * share, high * share)
        errors = _errors(weights, tried, form, moments)
        better = errors < least
        best = Params(np.where(better, tried.scale, best.scale), np.where(better, tried.zero_point, best.zero_point))
        least = np.minimum(errors, least)
    return best


def _errors(weights: Doubles, params: Params, form: BlockGrid, moments: Doubles | None) -> Doubles:
    """The error of every block `[out, blocks]`: of its weights, or of the products that they make with each other's inputs alone."""
    difference = form.nearest(weights, params) - weights
    starts = range(0, weights.shape[1], form.size)
    if moments is None:
        return np.add.reduceat(np.square(difference), list(starts), axis=1)
    parts = [slice(start, start + form.size) for start in starts]
    return np.stack([np.sum((difference[:, p] @ moments[p, p]) * difference[:, p], axis=1) for p in parts], axis=1)
