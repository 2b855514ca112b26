"""Rounding up or down, all weights of a row together.

For a row w of a weight and inputs with second moments H, values v cost (v - w) H (v - w)ᵀ. Each weight may go to the value of the code below it
or to that of the one above (Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization", equation 13, who relax
that choice to learn it). Here the choices are made one after the other, each making up for the errors so far as in `gptq`, and then
gone over again, each set to what is best given all others, which never makes the cost larger.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Ends = tuple[Doubles, Doubles]
_BLOCK = 64


def round_up_or_down(weights: Doubles, moments: Doubles, ends: Ends, *, passes: int) -> Doubles:
    """For each weight the value below it or the one above, whichever serves all of its row.

    Args:
        weights: `[groups, out, in]`.
        moments: Second moments of the inputs of each group, positive definite, `[groups, in, in]`.
        ends: The values next below and above each weight, of its shape; alike where the weight itself is one (`Grid.around`).
        passes: How often choices are gone over again, at most.

    Example:
        >>> w, h = np.array([[[0.4, 0.4, 1.0]]]), np.ones((1, 3, 3)) + 0.01 * np.eye(3)
        >>> round_up_or_down(w, h, (np.floor(w), np.ceil(w)), passes=3).tolist()
        [[[0.0, 1.0, 1.0]]]
    """
    near = _nearer(weights, ends)
    greedy = _one_by_one(weights, moments, ends)
    # Limits on what may make up for what can leave a row worse than plain rounding would.
    better = rounding_cost(weights, moments, greedy) < rounding_cost(weights, moments, near)
    values = np.where(better[:, :, None], greedy, near)
    for _ in range(passes):
        if not _go_over(values, weights, moments, ends):
            break
    return values


def _nearer(wanted: Doubles, ends: Ends) -> Doubles:
    low, high = ends
    return np.where(wanted - low <= high - wanted, low, high)


def rounding_cost(weights: Doubles, moments: Doubles, instead: Doubles) -> Doubles:
    """Mean squared error of each output, `[groups, out]`, with weights `instead`.

    Example:
        >>> rounding_cost(np.array([[[1.0, 1.0]]]), np.array([[[4.0, 1.0], [1.0, 9.0]]]), np.array([[[2.0, 0.0]]])).tolist()
        [[11.0]]
    """
    error = instead - weights
    found: Doubles = np.sum((error @ moments) * error, axis=2)
    return found


def _one_by_one(weights: Doubles, moments: Doubles, ends: Ends) -> Doubles:
    """Values chosen column by column, errors handed on through the upper Cholesky factor of the inverse of the moments."""
    factor = np.linalg.cholesky(np.linalg.inv(moments)).transpose(0, 2, 1)
    left, values = weights.copy(), np.zeros_like(weights)
    columns = weights.shape[2]
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        errors = np.zeros((*weights.shape[:2], stop - start))
        for column in range(start, stop):
            values[:, :, column] = _nearer(left[:, :, column], (ends[0][:, :, column], ends[1][:, :, column]))
            error = (left[:, :, column] - values[:, :, column]) / factor[:, column, column][:, None]
            errors[:, :, column - start] = error
            left[:, :, column + 1 : stop] -= error[:, :, None] * factor[:, None, column, column + 1 : stop]
        left[:, :, stop:] -= errors @ factor[:, start:stop, stop:]
    return values


def _go_over(values: Doubles, weights: Doubles, moments: Doubles, ends: Ends) -> int:
    """Set each value, column by column, to the better end given all others, in place; gives how many moved."""
    slope = (values - weights) @ moments
    diagonal = np.einsum("gii->gi", moments)
    moved, columns = 0, weights.shape[2]
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        near, own = slope[:, :, start:stop].copy(), moments[:, start:stop, start:stop]
        shifts = np.zeros_like(near)
        for column in range(start, stop):
            at = column - start
            best = values[:, :, column] - near[:, :, at] / diagonal[:, column][:, None]
            new = _nearer(best, (ends[0][:, :, column], ends[1][:, :, column]))
            shift = new - values[:, :, column]
            moved += int(np.count_nonzero(shift))
            values[:, :, column], shifts[:, :, at] = new, shift
            near[:, :, at:] += shift[:, :, None] * own[:, None, at, at:]
        slope += shifts @ moments[:, start:stop]
    return moved
