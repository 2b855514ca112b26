"""Bounds for the drop of any metric: a paired bootstrap over samples (BCa), with a floor for what was too rare to be seen.

Samples are resampled, not rows, so that the rows of one sample stay together; baseline and candidate are resampled alike.
The bounds are Efron's BCa quantiles (1987, JASA 82:171), acceleration by the jackknife, levels widened as Student's t
widens the normal (Hesterberg 2015, The American Statistician 69:371).

A resample cannot contain what the data do not: a candidate that agrees on all of 20 samples would be given a drop of 0 with
certainty. So no bound comes nearer to the estimate than `rare x spread`: `rare` = 1 - alpha^(1/n), about 3/n, is the largest
share of samples that may behave otherwise without one of them being seen among n (the rule of three), and `spread` is how far
apart the contributions of single samples lie (jackknife, 5th to 95th percentile; at least 1 for metrics that live between 0
and 1). For a metric that is a share this is the exact bound when nothing differs.

Measured over 300 simulated evaluations each (150 at 1000 samples), a nominal 5 % being missed by the upper bound: AUC with noisy
scores 0, 4, 3 % at 100, 300, 1000 samples; AUC when 3 % of the scores are replaced 0, 5, 5 % (35, 17, 5 % without the floor);
Spearman 0, 1, 5 %; skewed means 0 to 3 % (up to 20 % without the floor). The lower bound missed 0 to 5 %, and 7 % in one case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from quant.core.protocols import Metric, Records
from quant.errors import DataError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Drop = Callable[[Floats, Floats], Floats]
"""Values of baseline and candidate -> drop, elementwise."""

_CHUNK = 300_000
"""Weights held at a time, few enough to stay in a core's cache."""
_JACKKNIFE = 1000
"""Most parts that are left out in turn; with more samples, random blocks are left out instead of single ones."""
_UNDEFINED = 0.1
"""Largest share of resamples in which the metric may be undefined (one class only, say)."""
_TYPICAL = (0.05, 0.95)
"""Quantiles between which the contributions of single samples are taken to range."""
_BOUNDED = ("share", "rate", "correlation")


@runtime_checkable
class Weighted(Protocol):
    """What a metric may add to be resampled fast: its value under row weights, for many weightings at once."""

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """The metric with row r counted `weights[:, r]` times: `[weightings, rows]` -> `[weightings]`; NaN where undefined."""
        ...


@dataclass(frozen=True)
class Interval:
    """A drop and its one-sided bounds.

    Args:
        drop: The estimate.
        lower: Lower bound.
        upper: Upper bound.
        floor: Neither bound is nearer to the estimate than this.
    """

    drop: float
    lower: float
    upper: float
    floor: float = 0.0


def paired_bootstrap(
    metric: Metric, baseline: Records, candidate: Records, *, samples: Integers, drop: Drop, confidence: float, resamples: int, seed: int
) -> Interval:
    """The drop of `metric` and its one-sided bounds, each at `confidence`.

    Args:
        metric: The metric.
        baseline: `[rows, columns]`.
        candidate: The same rows, predicted by the candidate.
        samples: `[rows]`, the position 0..n-1 of each row's sample.
        drop: What is made of the two values.
        confidence: Of each bound.
        resamples: Bootstrap resamples.
        seed: Of the resampling.

    Raises:
        DataError: The metric is undefined in too many resamples, or the drop is not finite.
    """
    n = int(samples.max()) + 1

    def values(weights: Floats) -> tuple[Floats, Floats]:
        rows = weights if len(samples) == n else weights[:, samples]
        return weighted_values(metric, baseline, rows), weighted_values(metric, candidate, rows)

    base, other = values(np.ones((1, n)))
    estimate = float(drop(base, other)[0])
    rng = np.random.default_rng(seed)
    draws = np.concatenate([drop(*values(weights)) for weights in _resamples(rng, n, resamples)])
    usable = draws[~np.isnan(draws)]
    if len(usable) < (1 - _UNDEFINED) * resamples:
        hint = "bring more samples of every class"
        raise DataError(f"the metric is undefined in {resamples - len(usable)} of {resamples} resamples of {n} samples", hint=hint)
    without = [values(weights) for weights in _left_out(rng, n)]
    base_without, other_without = (np.concatenate(v) for v in zip(*without, strict=True))
    floor = _spread(metric, (base, other), (base_without, other_without), n=n) * (1 - (1 - confidence) ** (1 / n))
    floor = abs(float(drop(base, base + floor)[0]))
    influence = _influence(estimate, drop(base_without, other_without), n)
    lower, upper = _bca(np.sort(usable), estimate, influence, n=n, alpha=1 - confidence)
    found = Interval(estimate, min(lower, estimate - floor), max(upper, estimate + floor), floor)
    if not all(map(math.isfinite, (found.drop, found.lower, found.upper))):
        raise DataError("the drop is not finite in some resamples: the baseline's value is too near to 0", hint="use an absolute limit (relative: false)")
    return found


def weighted_values(metric: Metric, records: Records, weights: Floats) -> Floats:
    """The metric for each row of `weights` (`[weightings, rows]`); NaN where it is undefined."""
    if isinstance(metric, Weighted):
        return metric.weighted(records, weights)
    return np.array([_value(metric, np.repeat(records, counts, axis=0)) for counts in weights.astype(np.int64)])


def _value(metric: Metric, records: Records) -> float:
    try:
        return metric.value(records)
    except DataError:  # undefined on this resample; `paired_bootstrap` counts these
        return math.nan


def _resamples(rng: np.random.Generator, n: int, count: int) -> Iterator[Floats]:
    """How often each sample is drawn, `[resamples, samples]`, a chunk at a time."""
    chunk = max(_CHUNK // n, 1)
    for start in range(0, count, chunk):
        size = min(chunk, count - start)
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.reshape(-1), minlength=size * n).reshape(size, n).astype(np.float64)


def _left_out(rng: np.random.Generator, n: int) -> Iterator[Floats]:
    """Weights with one part of the samples left out in turn, `[parts, samples]`, a chunk at a time."""
    parts = min(n, _JACKKNIFE)
    part = rng.permutation(np.arange(n) % parts)
    chunk = max(_CHUNK // n, 1)
    for start in range(0, parts, chunk):
        yield (part != np.arange(start, min(start + chunk, parts))[:, None]).astype(np.float64)


def _influence(full: float, without: Floats, n: int) -> Floats:
    """What the left-out parts contribute: for a mean, the sum of their samples' distances from it."""
    defined = without[~np.isnan(without)]
    return (full - defined) * max(n - n / len(without), 1)


def _spread(metric: Metric, full: tuple[Floats, Floats], without: tuple[Floats, Floats], *, n: int) -> float:
    """How far apart the contributions of single samples lie, in the metric's unit; never 0."""
    widest = 1.0 if metric.unit in _BOUNDED else 0.0
    for value, left_out in zip(full, without, strict=True):
        influence = _influence(float(value[0]), left_out, n)
        if influence.size:
            low, high = np.quantile(influence, _TYPICAL)
            # Sums over blocks of m samples spread about sqrt(m) times as far as single samples.
            widest = max(widest, float(high - low) / math.sqrt(max(n / len(left_out), 1)))
    # All samples alike: the value itself is the only scale there is, and 1 when it is 0.
    return widest or abs(float(full[0][0])) or 1.0


def _bca(draws: Floats, estimate: float, influence: Floats, *, n: int, alpha: float) -> tuple[float, float]:
    """The BCa quantiles of sorted `draws` at alpha and 1 - alpha."""
    from scipy.special import ndtr, ndtri, stdtrit  # noqa: PLC0415 - keeps `import evaluators` light

    below, equal = np.searchsorted(draws, estimate, "left"), np.searchsorted(draws, estimate, "right")
    bias = float(ndtri(np.clip((below + equal) / 2 / len(draws), 1 / len(draws), 1 - 1 / len(draws))))
    centred = influence - influence.mean()
    power = float(np.sum(centred**2))
    acceleration = float(np.sum(centred**3)) / (6 * power**1.5) if power > 0 else 0.0
    student = math.sqrt(n / (n - 1)) * float(stdtrit(n - 1, 1 - alpha)) if n > 1 else math.inf
    levels = []
    for z in (-student, student):
        shifted = bias + z
        scale = 1 - acceleration * shifted
        level = float(ndtr(bias + shifted / scale)) if scale > 0 else float(z > 0)
        levels.append(level)
    last = len(draws) - 1
    # Outward order statistics: rounding never narrows the interval.
    low = draws[min(max(math.floor(levels[0] * (last + 2)) - 1, 0), last)]
    high = draws[min(max(math.ceil(levels[1] * (last + 2)) - 1, 0), last)]
    return float(low), float(high)
