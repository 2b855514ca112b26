"""Means, ranks and correlations under row weights, for many weightings at once (`[weightings, rows]`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def weighted_mean(column: Floats, weights: Floats) -> Floats:
    """The mean of `column` for each weighting, `[weightings]`."""
    return np.asarray(weighted_sum(column, weights) / weights.sum(axis=1))


def weighted_sum(column: Floats, weights: Floats) -> Floats:
    """The sum of `column` for each weighting, `[weightings]`."""
    # No matrix product: a BLAS may add up in another order when it has other threads.
    return np.asarray(np.einsum("wr,r->w", weights, column))


def weighted_ranks(column: Floats, weights: Floats) -> Floats:
    """Mid-ranks, `[weightings, rows]`: the weight below a value plus half the weight of its ties.

    With unit weights that is the usual mean rank less one half.

    Example:
        >>> weighted_ranks(np.array([10.0, 30.0, 10.0]), np.ones((1, 3))).tolist()
        [[1.0, 2.5, 1.0]]
    """
    order, starts = runs_of(column)
    runs = run_sums(weights[:, order], starts)
    middle = np.cumsum(runs, axis=1) - runs / 2
    run_of = np.empty(len(column), dtype=np.int64)
    run_of[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(column))))
    return np.asarray(middle[:, run_of])


def runs_of(column: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The order that sorts `column`, and where in it each new value starts."""
    order = np.argsort(column, kind="stable")
    ordered = column[order]
    return order, np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))


def run_sums(ordered: Floats, starts: npt.NDArray[np.int64]) -> Floats:
    """Sums of `ordered` (`[weightings, rows]`, sorted) over each run of equal values, `[weightings, runs]`."""
    return ordered if len(starts) == ordered.shape[1] else np.asarray(np.add.reduceat(ordered, starts, axis=1))


def weighted_counts(codes: npt.NDArray[np.int64], weights: Floats, count: int) -> Floats:
    """The weight of the rows with each code 0..count-1, `[weightings, count]`."""
    order, starts = runs_of(codes)
    counts = np.zeros((len(weights), count))
    counts[:, codes[order[starts]]] = run_sums(weights[:, order], starts)
    return counts


def weighted_correlation(first: Floats, second: Floats, weights: Floats) -> Floats:
    """Pearson's correlation for each weighting, `[weightings]`; NaN where one side is constant.

    Args:
        first: `[rows]`, or `[weightings, rows]`.
        second: As `first`.
        weights: `[weightings, rows]`.
    """
    total = weights.sum(axis=1, keepdims=True)
    x, y = (np.broadcast_to(v, weights.shape) - (weights * v).sum(axis=1, keepdims=True) / total for v in (first, second))
    xx, yy, xy = ((weights * p).sum(axis=1) for p in (x * x, y * y, x * y))
    scale = np.sqrt(xx) * np.sqrt(yy)
    # Below this the spread is the rounding of a constant.
    tiny = [np.finfo(np.float64).eps * (weights * np.square(np.broadcast_to(v, weights.shape))).sum(axis=1) for v in (first, second)]
    varies = (xx > tiny[0] * 1e-3) & (yy > tiny[1] * 1e-3) & (scale > 0)
    return np.where(varies, np.clip(xy / np.where(varies, scale, 1), -1, 1), np.nan)
