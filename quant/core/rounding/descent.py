"""Rounding up or down, all weights of a row together.

For a row w of a weight and inputs with second moments H, codes q cost (q s - w) H (q s - w)ᵀ. Each weight may go to the code below it
or to the one above (Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization", equation 13, who relax
that choice to learn it). Here the choices are made one after the other, each making up for the errors so far as in `gptq`, and then
gone over again, each set to what is best given all others, which never makes the cost larger.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
_BLOCK = 64
_ON_GRID = 1e-4
"""Steps within which a weight lies on the grid already: float32 tells 127 steps apart to 1e-5."""


def round_up_or_down(weights: Doubles, moments: Doubles, scale: Doubles, *, passes: int) -> Doubles:
    """The codes, whole numbers in float64 and each next to its weight, of `weights`; weights on the grid stay.

    Args:
        weights: `[groups, out, in]`.
        moments: Second moments of the inputs of each group, positive definite, `[groups, in, in]`.
        scale: What broadcasts to `[groups, out, 1]`.
        passes: How often choices are gone over again, at most.

    Example:
        >>> w, h = np.array([[[0.4, 0.4, 1.0]]]), np.ones((1, 3, 3)) + 0.01 * np.eye(3)
        >>> round_up_or_down(w, h, np.ones((1, 1, 1)), passes=3).tolist()
        [[[0.0, 1.0, 1.0]]]
    """
    scale = np.broadcast_to(scale, (*weights.shape[:2], 1))[:, :, 0]
    steps = weights / scale[:, :, None]
    near = np.rint(steps)
    fixed = np.abs(steps - near) < _ON_GRID
    ends = np.where(fixed, near, np.floor(steps)), np.where(fixed, near, np.ceil(steps))
    greedy = _one_by_one(weights, moments, scale, ends)
    # Limits on what may make up for what can leave a row worse than plain rounding would.
    better = rounding_cost(weights, moments, greedy * scale[:, :, None]) < rounding_cost(weights, moments, near * scale[:, :, None])
    codes = np.where(better[:, :, None], greedy, near)
    for _ in range(passes):
        if not _go_over(codes, weights, moments, scale, ends):
            break
    return codes


def rounding_cost(weights: Doubles, moments: Doubles, instead: Doubles) -> Doubles:
    """Mean squared error of each output, `[groups, out]`, with weights `instead`.

    Example:
        >>> rounding_cost(np.array([[[1.0, 1.0]]]), np.array([[[4.0, 1.0], [1.0, 9.0]]]), np.array([[[2.0, 0.0]]])).tolist()
        [[11.0]]
    """
    error = instead - weights
    found: Doubles = np.sum((error @ moments) * error, axis=2)
    return found


def _one_by_one(weights: Doubles, moments: Doubles, scale: Doubles, ends: tuple[Doubles, Doubles]) -> Doubles:
    """Codes chosen column by column, errors handed on through the upper Cholesky factor of the inverse of the moments."""
    factor = np.linalg.cholesky(np.linalg.inv(moments)).transpose(0, 2, 1)
    left, codes = weights.copy(), np.zeros_like(weights)
    columns = weights.shape[2]
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        errors = np.zeros((*weights.shape[:2], stop - start))
        for column in range(start, stop):
            codes[:, :, column] = np.clip(np.rint(left[:, :, column] / scale), ends[0][:, :, column], ends[1][:, :, column])
            error = (left[:, :, column] - codes[:, :, column] * scale) / factor[:, column, column][:, None]
            errors[:, :, column - start] = error
            left[:, :, column + 1 : stop] -= error[:, :, None] * factor[:, None, column, column + 1 : stop]
        left[:, :, stop:] -= errors @ factor[:, start:stop, stop:]
    return codes


def _go_over(codes: Doubles, weights: Doubles, moments: Doubles, scale: Doubles, ends: tuple[Doubles, Doubles]) -> int:
    """Set each code, column by column, to the better end given all others, in place; gives how many moved."""
    slope = (codes * scale[:, :, None] - weights) @ moments
    diagonal = np.einsum("gii->gi", moments)
    moved, columns = 0, weights.shape[2]
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        near, own = slope[:, :, start:stop].copy(), moments[:, start:stop, start:stop]
        shifts = np.zeros_like(near)
        for column in range(start, stop):
            at = column - start
            best = codes[:, :, column] - near[:, :, at] / (diagonal[:, column][:, None] * scale)
            new = np.clip(np.rint(best), ends[0][:, :, column], ends[1][:, :, column])
            shift = (new - codes[:, :, column]) * scale
            moved += int(np.count_nonzero(shift))
            codes[:, :, column], shifts[:, :, at] = new, shift
            near[:, :, at:] += shift[:, :, None] * own[:, None, at, at:]
        slope += shifts @ moments[:, start:stop]
    return moved
