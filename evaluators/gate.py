"""The gate: is the candidate's metric within the allowed drop of the baseline's, on the same samples, and how sure is that?

- *pass*: the upper bound of the drop is within the limit; *fail*: the lower bound is beyond it; else *inconclusive*. Each
  bound holds by itself at the gate's confidence, so that a bad candidate passes, or a good one fails, at most that seldom.
- A metric that is a proportion, with one row a sample, has exact bounds (`matched`). A share of the baseline is bounded by
  the drop's bounds over those of the baseline's own proportion, a fifth of the error probability being kept for the latter.
- Every other metric has a bootstrap over samples (`bootstrap`).
- For a direction of `same` the drop is the distance from the baseline, whichever way, and a pass is two one-sided tests (TOST).
- How many more samples would decide is a power calculation: so many that, if the shares or the spread that were seen are the true
  ones, the bound lies on the limit's side with a probability of 80 %.

Several gates, slices and looks at part of the samples are judged together by `family`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from evaluators.bootstrap import Drop, Floats, Interval, paired_bootstrap
from evaluators.matched import Counts, drop_lower, drop_upper, proportion_bounds, tango_upper
from quant.core.documents import Decision, Verdict
from quant.core.protocols import Metric, Records
from quant.errors import DataError

_BASELINE_SHARE = 0.2
"""Share of the error probability that the baseline's own proportion gets, when the limit is a share of it."""
_POWER = 0.8
"""Chance of a decision with as many more samples as are said to be needed."""
_TAIL = 10
"""Fewest resamples that may lie beyond a bound: there are more resamples than the recipe says where it takes as many."""
_MOST_SAMPLES = 10_000_000
"""A verdict that needs more samples than this is not to be had by more samples."""


def gate(
    metric: Metric,
    baseline: Records,
    *,
    candidate: Records,
    groups: npt.NDArray[np.integer],
    max_drop: float,
    relative: bool = False,
    confidence: float = 0.95,
    errors: tuple[float, float] | None = None,
    resamples: int = 2000,
    seed: int = 0,
    plan: bool = True,
) -> Verdict:
    """The verdict on a candidate.

    Args:
        metric: The metric, in whose direction a drop is measured.
        baseline: Records of the FP32 baseline, `[rows, columns]`.
        candidate: Records of the candidate for the same rows.
        groups: The sample that each row belongs to, `[rows]`.
        max_drop: The largest drop that is acceptable, in the metric's unit, or as a share of the baseline's value.
        relative: Whether `max_drop` is a share of the baseline's value.
        confidence: Confidence of each one-sided bound.
        errors: Error probability of the lower bound and of the upper one, where it is not that of `confidence`: what is left of it for one of
            several looks or gates.
        resamples: Bootstrap resamples, where the bootstrap is used.
        seed: Of the resampling.
        plan: Whether to say how many more samples would decide.

    Raises:
        DataError: No records, records that do not pair up or are not finite, or a share of a baseline that is 0.
    """
    samples = _checked(baseline, candidate, groups)
    n = int(samples.max()) + 1
    base, value = metric.value(baseline), metric.value(candidate)
    if relative and base == 0:
        raise DataError("the drop cannot be a share of the baseline: the baseline's value is 0", hint="set relative: false and an absolute max_drop")
    alphas = errors or (1 - confidence, 1 - confidence)
    if metric.proportion and len(baseline) == n:
        counts = _counts(metric, baseline, candidate)
        found, method = _matched(counts, round(base * n) if relative else None, alphas)
        width = _matched_width(counts if found.drop < max_drop else Counts(n, counts.c, counts.b), alphas[found.drop < max_drop])
    else:
        resamples = max(resamples, math.ceil(_TAIL / min(alphas)))
        method = f"paired bootstrap over samples (BCa and studentized, {resamples} resamples)"
        found = paired_bootstrap(
            metric, baseline, candidate, samples=samples, drop=_drop(metric, relative=relative), alphas=alphas, resamples=resamples, seed=seed
        )

        def width(total: int) -> float:
            # Where the floor decides, it is the rule of three that narrows, and that goes by 1/n.
            return n / total if found.upper <= found.drop + found.floor else math.sqrt(n / total)

    if metric.direction == "same":
        found = _either_way(found)
        method += ", both ways"
    decision: Decision = "pass" if found.upper <= max_drop else "fail" if found.lower > max_drop else "inconclusive"
    return Verdict(
        decision=decision,
        baseline=base,
        value=value,
        drop=found.drop,
        drop_lower=found.lower,
        drop_upper=found.upper,
        limit=max_drop,
        relative=relative,
        confidence=confidence,
        method=method,
        samples=n,
        needed=_needed(width, n, found, max_drop) if plan and decision == "inconclusive" else None,
    )


def _checked(baseline: Records, candidate: Records, groups: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    if len(baseline) == 0:
        raise DataError("no evaluation samples: there is nothing to compare", hint="give data.splits.evaluation some samples")
    if baseline.shape != candidate.shape or len(groups) != len(baseline):
        raise DataError(f"records of baseline {list(baseline.shape)}, candidate {list(candidate.shape)} and samples {len(groups)} do not pair up")
    for name, records in (("baseline", baseline), ("candidate", candidate)):
        bad = int(np.sum(~np.isfinite(records).all(axis=1)))
        if bad:
            raise DataError(f"{bad} of {len(records)} predictions of the {name} are not finite", hint="look for overflow (FP16 ends at 65504) or empty inputs")
    positions: npt.NDArray[np.int64] = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    return positions.reshape(-1)


def _counts(metric: Metric, baseline: Records, candidate: Records) -> Counts:
    ours, theirs = baseline[:, 0], candidate[:, 0]
    if metric.direction != "higher":  # a share that should be low, or stay: it drops where the candidate has it and the baseline has not
        ours, theirs = theirs, ours
    return Counts(len(ours), int(np.sum(ours > theirs)), int(np.sum(ours < theirs)))


def _matched(counts: Counts, successes: int | None, alphas: tuple[float, float]) -> tuple[Interval, str]:
    """Bounds of the drop, or (given how many the baseline gets right) of its share of the baseline."""
    method = "exact paired test (Buehler bounds, Tango's order)" if counts.is_exact else "Tango's score interval for matched pairs"
    error = math.sqrt(max((counts.b + counts.c) / counts.n - counts.drop**2, 0) / counts.n)
    if successes is None:
        return Interval(counts.drop, drop_lower(counts, 1 - alphas[0]), drop_upper(counts, 1 - alphas[1]), error=error), method
    kept = [alpha * _BASELINE_SHARE for alpha in alphas]
    low, high = drop_lower(counts, 1 - alphas[0] + kept[0]), drop_upper(counts, 1 - alphas[1] + kept[1])
    bases = [proportion_bounds(successes, counts.n, alpha) for alpha in kept]
    low, high = low / bases[0][low > 0], high / bases[1][high <= 0]
    scale = successes / counts.n
    return Interval(counts.drop / scale, low, high, error=error / scale), f"{method}, over the baseline's Clopper-Pearson bounds"


def _drop(metric: Metric, *, relative: bool) -> Drop:
    sign = 1.0 if metric.direction == "higher" else -1.0

    def drop(baseline: Floats, value: Floats) -> Floats:
        difference = sign * (baseline - value)
        if not relative:
            return difference
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(difference == 0, 0.0, difference / np.abs(baseline))

    return drop


def _either_way(found: Interval) -> Interval:
    nearest = 0.0 if found.lower <= 0 <= found.upper else min(abs(found.lower), abs(found.upper))
    return Interval(abs(found.drop), nearest, max(abs(found.lower), abs(found.upper)), error=found.error)


def _matched_width(counts: Counts, alpha: float) -> Callable[[int], float]:
    """From the drop to Tango's upper limit, if `total` samples showed the same shares (the exact bound is a steady factor away)."""

    def width(total: int) -> float:
        factor = total / counts.n
        scaled = Counts(total, round(counts.b * factor), round(counts.c * factor))
        return tango_upper(scaled, 1 - alpha) - scaled.drop

    return width


def _needed(width: Callable[[int], float], n: int, found: Interval, limit: float) -> int | None:
    """How many more samples decide with a chance of `_POWER`, if the drop is what it seems to be; None when that is hopeless."""
    from scipy.special import ndtri  # noqa: PLC0415 - keeps `import evaluators` light

    gap = abs(limit - found.drop)
    now = found.upper - found.drop if found.drop < limit else found.drop - found.lower
    factor = now / width(n)
    luck = float(ndtri(_POWER)) * found.error * math.sqrt(n)

    def distance(total: int) -> float:
        """From the true drop to where a limit is cleared with that chance by so many samples: the bound's width, and the luck of the draw."""
        return factor * width(total) + luck / math.sqrt(total)

    if n >= _MOST_SAMPLES or distance(_MOST_SAMPLES) > gap:
        return None
    low, high = n, _MOST_SAMPLES
    while high - low > max(low // 200, 1):
        middle = math.isqrt(low * high) if low * 4 < high else (low + high) // 2
        low, high = (middle, high) if distance(middle) > gap else (low, middle)
    return high - n
