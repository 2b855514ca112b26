"""Search for the range with the smallest loss: one threshold for both sides first, then each side on its own.

Losses of ranges are smooth but not always convex, so a sweep over geometrically spaced candidates (from the extremes that
were seen down to a floor) finds the basin, and narrower and narrower sweeps find its bottom. Both sides must first shrink
together: with outliers on both, neither side pays alone. Everything scales with the values, so scaled statistics give
scaled ranges. Ties go to the wider range.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrators.histogram import Doubles
from quant.core.formats import Range

Loss = Callable[[Doubles, Doubles], Doubles]
"""`(lows [k], highs [k]) -> losses [k]`."""

_PER_OCTAVE = 4
_MOST = 96
_NARROW = 7
_RESOLUTION = 2.0 ** (1 / 50)
"""Where narrowing ends: neighbours within 1.4 %. At a smooth minimum that is a loss of about 1e-4 of itself."""


def search(coarse: Loss, fine: Callable[[Range], Loss], limits: Range, *, floor: float, one_sided: bool, steps: int) -> Range:
    """The range between zero and `limits` on each side that has the smallest loss.

    Args:
        coarse: Loss for the wide sweeps.
        fine: Loss for the last, narrow sweeps, made for ranges near the one that it is given.
        limits: Widest range: `low <= 0 <= high`, not both 0.
        floor: Smallest threshold that can be best; positive.
        one_sided: Whether one threshold describes every range.
        steps: Steps of the grid; a side that is less than a quarter step long is not shortened further.
    """
    magnitude = max(-limits.low, limits.high)
    candidates = geometric(magnitude, min(floor, magnitude), per_octave=2 * _PER_OCTAVE if one_sided else _PER_OCTAVE)
    threshold = _best(_joint(coarse, limits), candidates)
    if one_sided:
        ratio = _ratio(candidates)
        threshold = narrowed(_joint(fine(_range_of(threshold, limits)), limits), threshold, ratio, magnitude)
        return _range_of(threshold, limits)
    low, high = _range_of(threshold, limits)
    ratio = 1.0
    for _ in range(2):
        before = low, high
        shortest = (high - low) / (4 * steps)
        candidates = np.append(geometric(limits.high, min(shortest, limits.high), per_octave=1), high)
        ratio = max(ratio, _ratio(candidates[:-1]))
        high = _best(_upper(coarse, low), candidates)
        candidates = np.append(geometric(-limits.low, min(shortest, -limits.low), per_octave=1), -low)
        ratio = max(ratio, _ratio(candidates[:-1]))
        low = -_best(_lower(coarse, high), candidates)
        if (low, high) == before:
            break
    loss = fine(Range(low, high))
    high = narrowed(_upper(loss, low), high, ratio, limits.high)
    low = -narrowed(_lower(loss, high), -low, ratio, -limits.low)
    high = narrowed(_upper(loss, low), high, 2 ** (1 / 16), limits.high)
    low = -narrowed(_lower(loss, high), -low, 2 ** (1 / 16), -limits.low)
    return Range(low, high)


def geometric(top: float, floor: float, per_octave: int = _PER_OCTAVE) -> Doubles:
    """Candidates from `top` down to `floor`, with equal ratios; at most 97.

    Example:
        >>> geometric(8.0, 1.0, per_octave=1).tolist()
        [8.0, 4.0, 2.0, 1.0]
    """
    octaves = float(np.log2(top / floor))
    count = int(min(max(np.ceil(octaves * per_octave), 1), _MOST)) + 1
    # As factors of `top`, not of `floor`, so that candidates scale exactly with the values.
    return np.asarray(top * np.exp2(np.linspace(0.0, -octaves, count)), np.float64)


def narrowed(loss: Callable[[Doubles], Doubles], start: float, ratio: float, limit: float) -> float:
    """The best threshold between `start / ratio` and `start * ratio` (at most `limit`), by ever narrower sweeps."""
    best = start
    while ratio > _RESOLUTION:
        candidates = np.minimum(best * ratio ** np.linspace(1.0, -1.0, 2 * (_NARROW // 2) + 1), limit)
        best = _best(loss, candidates)
        ratio = ratio ** (2 / (_NARROW + 1))
    return best


def _ratio(candidates: Doubles) -> float:
    return float(candidates[0] / candidates[1]) if candidates.size > 1 else 1.0


def _best(loss: Callable[[Doubles], Doubles], candidates: Doubles) -> float:
    return float(candidates[int(np.argmin(loss(candidates)))])


def _range_of(threshold: float, limits: Range) -> Range:
    return Range(max(-threshold, limits.low), min(threshold, limits.high))


def _joint(loss: Loss, limits: Range) -> Callable[[Doubles], Doubles]:
    return lambda t: loss(np.maximum(-t, limits.low), np.minimum(t, limits.high))


def _upper(loss: Loss, low: float) -> Callable[[Doubles], Doubles]:
    return lambda t: loss(np.full_like(t, low), t)


def _lower(loss: Loss, high: float) -> Callable[[Doubles], Doubles]:
    return lambda t: loss(-t, np.full_like(t, high))
