"""GPTQ: columns are rounded one after the other, and each one's error is made good by those still to come.

For a row w of the weight and inputs with second moments H, rounding column j to q costs least on the inputs seen when the
columns behind it move by -(w_j - q) / U_jj U_j,j+1…, where U is the upper Cholesky factor of the inverse of H (Frantar et
al. 2022, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", equations 2 and 3).
"""

from __future__ import annotations

import numpy as np

from quant.core.formats import Codes, Params
from quant.core.rounding.blocks import BlockGrid, Doubles, Rounded
from quant.core.rounding.nearest import block_params


def round_gptq(weights: Doubles, moments: Doubles, form: BlockGrid, *, damping: float = 0.01, by_activity: bool = False, search: bool = False) -> Rounded:
    """Codes of `weights` whose errors make up for one another on inputs with `moments`.

    Args:
        weights: float64 `[out, in]`.
        moments: Second moments of the inputs, float64 `[in, in]`.
        form: Grid and block size.
        damping: Share of the mean of the diagonal of `moments` that is added to it, so that it can be inverted.
        by_activity: Round the columns with the largest inputs first. The scales of all blocks are then chosen before anything is
            rounded; otherwise those of a block are chosen when its turn comes, from its weights as they have become.
        search: Cut the range of each block where that makes the error of the products within it less.
    """
    columns = weights.shape[1]
    order = np.argsort(-np.diag(moments), kind="stable") if by_activity else np.arange(columns)
    factor = _inverse_factor(moments[np.ix_(order, order)], damping)
    left = weights[:, order].copy()
    fixed = block_params(weights, form, search=search, moments=moments) if by_activity else None
    scale = np.zeros((weights.shape[0], -(-columns // form.size)), np.float32)
    zero = np.zeros(scale.shape, form.grid.dtype)
    codes = np.zeros(weights.shape, form.grid.dtype)
    for start in range(0, columns, form.size):
        part = slice(start, min(start + form.size, columns))
        if fixed is None:
            found = block_params(left[:, part], form, search=search, moments=moments[part, part])
            scale[:, start // form.size], zero[:, start // form.size] = found.scale[:, 0], found.zero_point[:, 0]
        else:
            scale, zero = fixed.scale, fixed.zero_point
        own = order[part] // form.size
        codes[:, order[part]], errors = _round_columns(left[:, part], factor[part, part], Params(scale[:, own], zero[:, own]), form)
        left[:, part.stop :] -= errors @ factor[part, part.stop :]
    return Rounded(codes, Params(scale, zero))


def _inverse_factor(moments: Doubles, damping: float) -> Doubles:
    """The upper Cholesky factor U of the inverse of the damped `moments`: Uᵀ U is that inverse."""
    diagonal = np.diag(moments)
    mean = float(diagonal.mean())
    # Inputs that are always 0 say nothing of any weight; then every one counts for itself.
    damped = moments + np.eye(len(moments)) * (damping * mean if mean > 0 else 1.0)
    factor: Doubles = np.linalg.cholesky(np.linalg.inv(damped)).T
    return factor


def _round_columns(left: Doubles, factor: Doubles, params: Params, form: BlockGrid) -> tuple[Codes, Doubles]:
    """Codes of the columns `left` (changed), and the error of each in units of its own diagonal element of `factor`, both `[out, columns]`.

    `params` has a scale and a zero point for every weight.
    """
    grid = form.grid
    codes = np.zeros(left.shape, grid.dtype)
    errors = np.zeros(left.shape)
    for column in range(left.shape[1]):
        own = Params(params.scale[:, column], params.zero_point[:, column])
        codes[:, column] = grid.quantize(left[:, column], own, 0)
        errors[:, column] = (left[:, column] - grid.dequantize(codes[:, column], own, 0)) / factor[column, column]
        left[:, column + 1 :] -= np.outer(errors[:, column], factor[column, column + 1 :])
    return codes, errors
