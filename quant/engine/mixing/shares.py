"""Looks at the evaluation samples: how often a mixed plan may be judged there, and how sure each verdict then has to be.

Which plan is judged next follows from search samples, and from nothing that evaluation samples say but that the plans before did not pass: the
plans are one sequence, known before the first look. So the chance that any of them passes and should not have is at most the sum of the
chances of each look (Bonferroni), and what a gate's confidence leaves is shared out among the looks. Besides, for each scheme alone that may have
passed there is one plan that costs no more and is predicted to be no worse: its look has a share, too, whether it is made or not.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quant.engine.bind import Bound
from quant.engine.candidates import Workshop

_FIRST = 2
"""The first look, which mostly is the only one, gets so many times the share of the others."""
_DIGITS = 12


@dataclass(frozen=True)
class Shares:
    """How the error probability of a gate is shared out.

    Args:
        plans: Share of each look at a plan that was found on search samples, in their order.
        beside: Share of a plan that is judged because a scheme alone has passed; 0 when there is none.
    """

    plans: tuple[float, ...]
    beside: float = 0.0

    @classmethod
    def of(cls, looks: int, schemes: int) -> Shares:
        """The shares of `looks` plans, and of one beside each of `schemes`; a single look gets all.

        Example:
            >>> Shares.of(3, 1)
            Shares(plans=(0.4, 0.2, 0.2), beside=0.2)
            >>> Shares.of(1, 1)
            Shares(plans=(1.0,), beside=0.0)
        """
        if looks == 1:
            return cls((1.0,))
        whole = _FIRST + looks - 1 + schemes
        return cls((_FIRST / whole, *(1 / whole for _ in range(looks - 1))), 1 / whole if schemes else 0.0)


def surer(bound: Bound, share: float) -> Bound:
    """The recipe, with gates that are wrong only in this share of the cases in which they may be."""
    gates = tuple((name, spec.model_copy(update={"confidence": _sure(spec.confidence, share)})) for name, spec in bound.gates)
    return replace(bound, gates=gates)


def look(workshop: Workshop, share: float) -> Workshop:
    """The workshop, with such gates."""
    return _with(workshop, surer(workshop.bound, share))


def at_least_as_sure(workshop: Workshop, confidences: Sequence[float]) -> Workshop:
    """The workshop, with gates whose confidence is that of a look, where it is more than the recipe's."""
    gates = workshop.bound.gates
    if len(confidences) != len(gates) or all(spec.confidence >= sure for (_, spec), sure in zip(gates, confidences, strict=True)):
        return workshop
    pairs = zip(gates, confidences, strict=True)
    found = tuple((name, spec.model_copy(update={"confidence": max(spec.confidence, sure)})) for (name, spec), sure in pairs)
    return _with(workshop, replace(workshop.bound, gates=found))


def _with(workshop: Workshop, bound: Bound) -> Workshop:
    found = copy.copy(workshop)
    found.bound = bound
    return found


def _sure(confidence: float, share: float) -> float:
    """Confidence that leaves a share of what `confidence` does.

    Example:
        >>> _sure(0.95, 0.4)
        0.98
    """
    return round(1 - (1 - confidence) * share, _DIGITS)
