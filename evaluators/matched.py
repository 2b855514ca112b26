"""Exact bounds for the difference of two proportions that were measured on the same samples.

Of `n` pairs, `b` are right in the baseline only and `c` in the candidate only; their probabilities are p_b and p_c. The
drop is d = p_b - p_c, and psi = p_b + p_c, how often the two disagree, is a nuisance.

The upper bound is Buehler's: the tables (b, c) are put in the order of Tango's score limit, and the bound is the largest d
under which this table, or one ordered before it, still has a probability above 1 - confidence for some psi. It never
undercovers, whatever n and psi are; and as the set of tables does not depend on d, verdict and bound cannot disagree. The
psi that are searched are those of a Clopper-Pearson interval, whose error probability is added (Berger and Boos): that
keeps psi that the data rule out from widening the bound.

- Tango (1998), Statistics in Medicine 17:891 — the score statistic.
- Buehler (1957), JASA 52:482; Lloyd and Moldovan (2007), Statistics in Medicine 26:3369 — exact limits from an order.
- Berger and Boos (1994), JASA 89:1012 — the restricted nuisance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MOST_DISCORDANT = 5000
"""Above so many disagreements Tango's limit itself is used: it then differs from the exact one by less than 1 % of its width."""

_BERGER_BOOS_SHARE = 1 / 500
_GRID = 32
_TIE = 1e-9


@dataclass(frozen=True)
class Counts:
    """What `n` pairs show.

    Args:
        n: Pairs.
        b: Pairs that only the baseline gets right.
        c: Pairs that only the candidate gets right.
    """

    n: int
    b: int
    c: int

    @property
    def drop(self) -> float:
        """The observed drop, in -1..1."""
        return (self.b - self.c) / self.n

    @property
    def is_exact(self) -> bool:
        """Whether the bounds of these counts are exact, or Tango's approximation."""
        return self.b + self.c <= MOST_DISCORDANT


def drop_bounds(counts: Counts, confidence: float) -> tuple[float, float]:
    """One-sided lower and upper bounds of the drop, each at `confidence`.

    Example:
        >>> low, high = drop_bounds(Counts(n=299, b=0, c=0), 0.95)
        >>> round(low, 4), round(high, 4)
        (-0.01, 0.01)
    """
    return drop_lower(counts, confidence), drop_upper(counts, confidence)


def drop_lower(counts: Counts, confidence: float) -> float:
    """The one-sided lower bound of the drop at `confidence`: the upper one with the two models' parts exchanged."""
    return 0.0 - drop_upper(Counts(counts.n, counts.c, counts.b), confidence)


def drop_upper(counts: Counts, confidence: float) -> float:
    """The one-sided upper bound of the drop at `confidence`; exact up to `MOST_DISCORDANT` disagreements."""
    limit = tango_upper(counts, confidence)
    if limit >= 1 or not counts.is_exact:
        return limit
    return _Tail(counts, confidence, limit).bound()


def tango_statistic(b: npt.ArrayLike, c: npt.ArrayLike, n: int, drop: float) -> Floats:
    """Tango's score statistic of tables (b, c) under a true `drop`; about standard normal, and small when `drop` is too large.

    Example:
        >>> round(float(tango_statistic(40, 20, 160, 0.0)), 4)  # McNemar: 20 / sqrt(60)
        2.582
    """
    b, c = np.asarray(b, dtype=np.float64), np.asarray(c, dtype=np.float64)
    linear = -b - c + (2 * n - b + c) * drop
    constant = -c * drop * (1 - drop)
    root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0))
    # The root of 2n p² + linear p + constant = 0, in the form that does not cancel.
    stable = -2 * constant / np.where(linear + root > 0, linear + root, 1)
    p_c = np.where(linear > 0, stable, (root - linear) / (4 * n))
    variance = np.maximum(n * (2 * p_c + drop * (1 - drop)), 0)
    distance = b - c - n * drop
    return np.where(variance > 0, distance / np.sqrt(np.where(variance > 0, variance, 1)), np.sign(distance) * np.inf if np.any(distance) else 0.0)


def tango_upper(counts: Counts, confidence: float) -> float:
    """Tango's approximate upper limit of the drop: where the score statistic meets the normal quantile."""
    from scipy.special import ndtri  # noqa: PLC0415 - keeps `import evaluators` light

    quantile = float(ndtri(1 - confidence))
    low, high = counts.drop, 1.0
    if low >= 1:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if float(tango_statistic(counts.b, counts.c, counts.n, middle)) > quantile:
            low = middle
        else:
            high = middle
    return high


def proportion_bounds(successes: int, n: int, alpha: float) -> tuple[float, float]:
    """The Clopper-Pearson interval of a proportion, with error probability `alpha` for both sides together."""
    from scipy.special import betaincinv  # noqa: PLC0415 - keeps `import evaluators` light

    low = 0.0 if successes == 0 else float(betaincinv(successes, n - successes + 1, alpha / 2))
    high = 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, 1 - alpha / 2))
    return low, high


class _Tail:
    """The tables that are ordered up to the observed one, and their probability."""

    def __init__(self, counts: Counts, confidence: float, limit: float) -> None:
        from scipy.special import gammaln, ndtri  # noqa: PLC0415 - keeps `import evaluators` light

        self.counts, self.alpha, self.limit = counts, 1 - confidence, limit
        self.beta = self.alpha * _BERGER_BOOS_SHARE
        n = counts.n
        self.psi_low, self.psi_high = proportion_bounds(counts.b + counts.c, n, self.beta)
        most = min(n, math.ceil(n * self.psi_high + _reach(n * self.psi_high)))
        b = np.arange(most + 1)
        self.log_ways = gammaln(n + 1) - gammaln(b + 1) - gammaln(n - b + 1)
        self.least_c = _least_c(b, n, limit, float(ndtri(self.alpha)))
        # The observed table lies on the edge of its own set; rounding must not put it outside.
        self.least_c[counts.b] = min(self.least_c[counts.b], counts.c)

    def probability(self, p_b: Floats, p_c: Floats) -> Floats:
        """The probability of the set for each (p_b, p_c): `[points]`."""
        from scipy.special import betainc, xlog1py, xlogy  # noqa: PLC0415 - keeps `import evaluators` light

        n, most = self.counts.n, len(self.least_c) - 1
        reach = _reach(n * p_b)
        first = np.maximum(np.floor(n * p_b - reach), 0).astype(np.int64)
        width = int(np.max(np.minimum(np.ceil(n * p_b + reach), most) - first)) + 1
        b = first[:, None] + np.arange(width)
        inside = b <= most
        b = np.minimum(b, most)
        p_b, p_c = p_b[:, None], p_c[:, None]
        weight = np.where(inside, np.exp(self.log_ways[b] + xlogy(b, p_b) + xlog1py(n - b, -p_b)), 0)
        least, rest = self.least_c[b], n - b
        share = np.clip(p_c / np.maximum(1 - p_b, 1e-300), 0, 1)
        tail = betainc(np.maximum(least, 1), np.maximum(rest - least + 1, 1), share)
        tail = np.where(least <= 0, 1.0, np.where(least > rest, 0.0, tail))
        return np.asarray((weight * tail).sum(axis=1))

    def p_value(self, drop: float) -> float:
        """The largest probability of the set over psi, when the true drop is `drop`."""
        low, high = math.sqrt(max(abs(drop), self.psi_low)), math.sqrt(max(self.psi_high, abs(drop)))
        best = 0.0
        for points in (_GRID, 9, 9):
            roots = np.linspace(low, high, points)
            psi = np.maximum(roots**2, abs(drop))
            found = self.probability(np.minimum((psi + drop) / 2, 1), np.maximum((psi - drop) / 2, 0))
            place = int(np.argmax(found))
            best = max(best, float(found[place]))
            low, high = roots[max(place - 1, 0)], roots[min(place + 1, points - 1)]
        return min(best + self.beta, 1.0)

    def bound(self) -> float:
        """The drop at which the p-value falls to alpha, from above."""
        from scipy.optimize import brentq  # noqa: PLC0415 - keeps `import evaluators` light
        from scipy.special import ndtri  # noqa: PLC0415

        wanted = float(ndtri(self.alpha))
        step = 1e-5 * self.psi_high

        def excess(drop: float) -> float:
            return float(np.clip(ndtri(self.p_value(drop)), -40, 40)) - wanted

        low, high = self.counts.drop, min(self.limit + 0.5 * (self.limit - self.counts.drop) + 1 / self.counts.n, self.psi_high)
        if excess(low) <= 0:
            low = -self.psi_high
        if excess(high) > 0:
            high = self.psi_high
        if excess(high) > 0:
            return min(high, 1.0)
        # `step` is added so that the rounding of the search falls on the safe side.
        return min(float(brentq(excess, low, high, xtol=step / 2)) + step, 1.0)


def _reach(mean: npt.ArrayLike) -> Floats:
    """So far from its mean a binomial count has less than 1e-13 of its mass."""
    return np.asarray(8 * np.sqrt(mean) + 20)


def _least_c(b: Integers, n: int, limit: float, quantile: float) -> Integers:
    """For each b the smallest c whose Tango limit is at most `limit`; n - b + 1 where there is none."""
    low, high = np.zeros_like(b), n - b + 1
    for _ in range(int(n + 1).bit_length()):
        middle = (low + high) // 2
        within = tango_statistic(b, middle, n, limit) <= quantile + _TIE
        high = np.where(within, middle, high)
        low = np.where(within, low, np.minimum(middle + 1, high))
    return high
