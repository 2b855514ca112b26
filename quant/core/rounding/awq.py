"""AWQ: weights that large inputs multiply are rounded more finely, by a factor to each input channel.

Weights are multiplied by s before rounding and inputs divided by it, so that the product is the same. s is the channel's
root mean square to a power between 0 and 1, the one that makes the error of the outputs least (Lin et al. 2023, "AWQ:
Activation-aware Weight Quantization for LLM Compression and Acceleration", section 3.2; they take the mean magnitude).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quant.core.rounding.blocks import BlockGrid, Doubles, output_error

POWERS = tuple(float(power) for power in np.arange(0, 11) / 10)
"""Powers that are tried first; 0 leaves the weights as they are."""
_BETWEEN = 0.05
"""How far from the best of them two more are tried."""


def channel_scales(weights: Sequence[Doubles], moments: Doubles, form: BlockGrid) -> tuple[Doubles, float]:
    """The factor of each input channel that makes the error of the outputs least.

    Args:
        weights: Weights of all layers that read the same input, float64 `[out, in]` each.
        moments: Second moments of that input, float64 `[in, in]`.
        form: Grid and block size.

    Returns:
        float64 `[in]` (all 1 where no factor helps), and the error left as a share of that without factors.
    """
    level = np.sqrt(np.diag(moments))
    level = np.maximum(level, level.max() * 1e-4) if level.max() > 0 else np.ones_like(level)
    stacked = np.concatenate(weights)

    def tried(power: float) -> tuple[float, Doubles]:
        factors = np.exp2(np.rint(np.log2(_centred(level**power)) * _FINENESS) / _FINENESS)
        scaled = stacked * factors
        rounded = form.nearest(scaled, form.params(*form.extremes(scaled))) / factors
        return output_error(rounded - stacked, moments), factors

    found = {power: tried(power) for power in POWERS}
    best = min(found, key=lambda power: found[power][0])
    found |= {power: tried(power) for power in (best - _BETWEEN, best + _BETWEEN) if 0 < power < 1}
    least, factors = min(found.values(), key=lambda pair: pair[0])
    without = found[0.0][0]
    return factors, least / without if without > 0 else 1.0


_FINENESS = 16
"""Factors are whole 16ths of an octave: a few units in the last place of `moments` then change none of them."""


def _centred(factors: Doubles) -> Doubles:
    """Factors with the geometric mean of the least and the largest at 1."""
    centred: Doubles = factors / np.sqrt(factors.max() * factors.min())
    return centred
