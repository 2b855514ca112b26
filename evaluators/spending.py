"""How much of its error probability a sequential gate may spend at each look, so that all looks together keep to it.

A gate that looks after every batch, each time at the same level, is wrong far more often than that level says. An error
spending function (Lan and DeMets 1983, Biometrika 70:659) says how much of the error probability may be used up by the time
that a share t of the samples was looked at:

- `obrien-fleming`: 2 - 2 Phi(z / sqrt(t)) with z the upper alpha/2 quantile; hardly anything early, so that a run to the end is nearly as
  sharp as one without looks;
- `pocock`: alpha ln(1 + (e - 1) t); about as much at each look, so that clear cases end early, and unclear ones need more samples.

From it follows the level of the test at each look: the boundary that a Brownian motion, seen at the times t, first crosses at look k with
just the probability that was spent there, found by integrating the density of what has not crossed yet (Armitage, McPherson
and Rowe 1969, JRSS A 132:235). The test at a look is then made at that level, whatever test it is (Jennison and
Turnbull 2000, Group Sequential Methods, section 12.3: the significance level approach).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Spending = Literal["obrien-fleming", "pocock"]

_POINTS = 801
"""Points of the grid on which densities are integrated."""
_REACH = 9.0
"""A boundary beyond so many standard deviations is never reached."""


def spent(spending: Spending, alpha: float, time: float) -> float:
    """The error probability that may be used up at `time` (share of the samples, 0..1).

    Example:
        >>> round(spent("obrien-fleming", 0.05, 0.5), 4), round(spent("pocock", 0.05, 0.5), 4), spent("pocock", 0.05, 1.0)
        (0.0056, 0.031, 0.05)
    """
    return alpha if time >= 1 else _FUNCTIONS[spending](alpha, time)


def levels(times: Sequence[float], alpha: float, *, spending: Spending, least: float = 0.0) -> tuple[float, ...]:
    """The level of the one-sided test at each look; 0 where there is none.

    Args:
        times: Share of the samples seen at each look, rising, the last 1.
        alpha: Error probability of all looks together.
        spending: How it is spent.
        least: A look whose level would be below this is left out, and what it might have spent is kept (a bootstrap cannot tell the tail of
            its tail).

    Example:
        >>> [round(level, 4) for level in levels((0.5, 1.0), 0.05, spending="obrien-fleming")]
        [0.0056, 0.0482]
    """
    return _levels(tuple(round(t, 12) for t in times), alpha, spending, least)


@lru_cache(maxsize=4096)
def _levels(times: tuple[float, ...], alpha: float, spending: Spending, least: float) -> tuple[float, ...]:
    from scipy.special import ndtr  # noqa: PLC0415 - keeps `import evaluators` light

    found: list[float] = []
    walk = _Walk()
    used = 0.0
    for time in times:
        may = spent(spending, alpha, time) - used
        boundary = walk.boundary(time, may)
        level = float(ndtr(-boundary / math.sqrt(time)))
        if level < least or boundary >= _REACH * math.sqrt(time):
            found.append(0.0)
            continue
        walk.stop(time, boundary)
        used += may
        found.append(level)
    return tuple(found)


class _Walk:
    """The density of a Brownian motion that has crossed no boundary yet."""

    def __init__(self) -> None:
        self._time = 0.0
        self._places: Floats = np.zeros(1)
        self._weights: Floats = np.ones(1)  # density times the width that each point stands for

    def boundary(self, time: float, probability: float) -> float:
        """What it exceeds at `time`, not having crossed before, with this probability."""
        from scipy.optimize import brentq  # noqa: PLC0415 - keeps `import evaluators` light
        from scipy.special import ndtr  # noqa: PLC0415

        spread = math.sqrt(max(time - self._time, 1e-300))
        reach = _REACH * math.sqrt(time)

        def excess(boundary: float) -> float:
            return float(np.dot(self._weights, ndtr((self._places - boundary) / spread))) - probability

        return reach if excess(reach) >= 0 else float(brentq(excess, -reach, reach, xtol=1e-10))

    def stop(self, time: float, boundary: float) -> None:
        """Go on to `time` with what lies below `boundary` there."""
        spread = math.sqrt(max(time - self._time, 1e-300))
        places = np.linspace(-_REACH * math.sqrt(time), boundary, _POINTS)
        steps = (places[:, None] - self._places) / spread
        density = (np.exp(-(steps**2) / 2) / (spread * math.sqrt(2 * math.pi)) * self._weights).sum(axis=1)
        self._time, self._places, self._weights = time, places, density * _simpson(places)


def _simpson(places: Floats) -> Floats:
    weights = np.full(len(places), 2.0)
    weights[1::2] = 4
    weights[[0, -1]] = 1
    return np.asarray(weights * (places[1] - places[0]) / 3)


def _obrien_fleming(alpha: float, time: float) -> float:
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - keeps `import evaluators` light

    return 2 * float(ndtr(ndtri(alpha / 2) / math.sqrt(time)))


def _pocock(alpha: float, time: float) -> float:
    return alpha * math.log(1 + (math.e - 1) * time)


_FUNCTIONS: Mapping[Spending, Callable[[float, float], float]] = {"obrien-fleming": _obrien_fleming, "pocock": _pocock}
