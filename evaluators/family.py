"""Several verdicts on one candidate: of several gates, on slices of the samples, and at looks before all samples were seen.

A candidate passes only if every gate does, and fails if any does. So a wrong pass needs one given gate to be wrong, whose level is enough
(an intersection-union test: Berger 1982, Technometrics 24:295; Berger and Hsu 1996, Statistical Science 11:283), while each further
gate is a further chance of a wrong fail. Fails are therefore held to Holm's procedure (1979, Scandinavian Journal of Statistics 6:65): of m
verdicts that have not failed, each is tried at its error probability over m; where any falls, the others are tried
at that over the number that is left. Whatever the truth and however the verdicts depend on each other, a good candidate fails at most as
seldom as the confidence says.

Looks before the end share that probability as `spending` says, for pass and fail each by itself (a boundary on one side only makes errors on
the other rarer), and in Holm's procedure what a verdict is given is what is shared out over its looks (Ye, Li, Liu and Yao 2013, Statistics in Medicine
32:1112). A verdict that has fallen stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from evaluators.gate import gate
from evaluators.spending import Spending, levels
from quant.core.documents import Verdict
from quant.core.protocols import Metric, Records
from quant.errors import DataError

_TAIL = 10
"""Fewest resamples beyond the bound of a look."""
_NEW = 0.002
"""A look needs at least this share of new samples."""


def _itself(alpha: float) -> float:
    return alpha


@dataclass(frozen=True)
class Question:
    """What one gate asks of one part of the samples.

    Args:
        metric: The metric.
        baseline: Its records of the FP32 baseline, `[rows, columns]`.
        candidate: Its records of the candidate for the same rows.
        groups: Position of the sample that each row belongs to, `[rows]`.
        max_drop: The largest drop that is acceptable.
        relative: Whether that is a share of the baseline's value.
        confidence: Of each one-sided bound.
        resamples: Bootstrap resamples.
        slice: What the part is called; empty: all samples.
        members: `[samples]`, whether a sample is in the part; None: all are.
    """

    metric: Metric
    baseline: Records
    candidate: Records
    groups: npt.NDArray[np.int64]
    max_drop: float
    relative: bool = False
    confidence: float = 0.95
    resamples: int = 2000
    slice: str = ""
    members: npt.NDArray[np.bool_] | None = None
    _level: Callable[[float], float] = field(default=_itself, repr=False)

    def part(self, end: int | None = None, level: Callable[[float], float] = _itself) -> Question:
        """The question on the samples before `end` that are in the slice."""
        keep = np.ones(len(self.groups), bool) if self.members is None else self.members[self.groups]
        keep &= self.groups < end if end is not None else True
        return Question(
            self.metric,
            self.baseline[keep],
            self.candidate[keep],
            self.groups[keep],
            *(self.max_drop, self.relative, self.confidence, self.resamples, self.slice),
            _level=level,
        )

    def times(self, ends: Sequence[int]) -> tuple[float, ...]:
        """Share of the slice's samples before each of `ends`."""
        if self.members is None:
            return tuple(end / ends[-1] for end in ends)
        before = np.concatenate([[0], np.cumsum(self.members)])
        return tuple(float(before[end] / max(before[ends[-1]], 1)) for end in ends)

    def ask(self, left: int, seed: int, *, plan: bool) -> Verdict:
        """The verdict when its chance of a wrong fail is shared among `left`; with how many more samples are needed if `plan`."""
        alpha = 1 - self.confidence
        low, high = self._level(alpha / left), self._level(alpha)
        found = gate(
            self.metric,
            self.baseline,
            candidate=self.candidate,
            groups=self.groups,
            max_drop=self.max_drop,
            relative=self.relative,
            confidence=self.confidence,
            errors=(low or alpha / left, high or alpha),
            resamples=self.resamples,
            seed=seed,
            plan=plan,
        ).model_copy(update={"slice": self.slice, "family": left})
        may = {"pass": high, "fail": low, "inconclusive": 1.0}[found.decision]
        return found if may else found.model_copy(update={"decision": "inconclusive"})


def judge(questions: Sequence[Question], *, seed: int) -> tuple[Verdict, ...]:
    """The verdict on each question, with wrong fails held to Holm's procedure.

    Args:
        questions: All of one candidate.
        seed: Of resampling.

    Raises:
        DataError: See `gate`.
    """
    found = _holm({place: question.part() for place, question in enumerate(questions)}, len(questions), seed)
    return tuple(found[place] for place in range(len(questions)))


def _holm(questions: Mapping[int, Question], left: int, seed: int, *, must: bool = True, plan: bool = True) -> dict[int, Verdict]:
    """Place -> verdict of each question; of those without one (the metric is not defined on what was seen), unless all must have one, nothing."""
    found: dict[int, Verdict] = {}
    undefined: set[int] = set()
    while len(found) + len(undefined) < len(questions):
        asked: dict[int, Verdict] = {}
        for place in sorted(questions.keys() - found.keys() - undefined):
            try:
                asked[place] = questions[place].ask(left, seed, plan=plan)
            except DataError:
                if must:
                    raise
                undefined.add(place)
        fallen = {place: verdict for place, verdict in asked.items() if verdict.decision == "fail"}
        found |= fallen or asked
        left -= len(fallen)
    return found


@dataclass(frozen=True)
class Looks:
    """When a sequential gate looks.

    Args:
        ends: Number of samples that were seen at each look, rising; the last is all that there are.
        spending: How the error probability is spent.
    """

    ends: tuple[int, ...]
    spending: Spending = "obrien-fleming"

    @classmethod
    def even(cls, samples: int, count: int, spending: Spending) -> Looks:
        """`count` looks, evenly spaced.

        Example:
            >>> Looks.even(100, 3, "pocock").ends
            (34, 67, 100)
        """
        return cls(tuple(sorted({-(-samples * look // count) for look in range(1, count + 1)})), spending)


def judge_in_looks(
    questions: Sequence[Question], looks: Looks, *, seen: int, seed: int, before: Mapping[int, Verdict] | None = None, since: int = 0
) -> tuple[dict[int, Verdict], bool]:
    """Place -> verdict of each question after the looks at the first `seen` samples, and whether that is the end: one failed, or all are decided.

    A question whose metric is not defined on what was seen (there was one class only, say) has no verdict unless all samples were seen.

    Args:
        questions: All of one candidate.
        looks: When it is looked.
        seen: Number of samples for which there are predictions.
        seed: Of resampling.
        before: What was found at the looks at the first `since` samples, so that these need not be made again.
        since: Number of samples of the last look that was made before.

    Raises:
        DataError: See `gate`; at the last look only.
    """
    found = {place: verdict for place, verdict in (before or {}).items() if verdict.decision != "inconclusive"}
    schedules = [_useful(question.times(looks.ends)) for question in questions]
    made = [number for number, end in enumerate(looks.ends) if end <= seen]
    for number in (n for n in made if looks.ends[n] > since):
        is_last = number == len(looks.ends) - 1
        asked: dict[int, Question] = {}
        for place, question in enumerate(questions):
            level = _level(question, schedules[place], number, looks.spending)
            if place not in found and (is_last or level(1 - question.confidence) > 0):
                asked[place] = question.part(looks.ends[number], level)
        verdicts = _holm(asked, len(questions), seed, must=is_last, plan=is_last)
        found |= {p: _told(v, questions[p], looks, number) for p, v in verdicts.items() if v.decision != "inconclusive" or is_last}
        if len(found) == len(questions) or any(verdict.decision == "fail" for verdict in found.values()):
            return found | _undecided(questions, found, looks, number, seed), True
    return found | _undecided(questions, found, looks, made[-1], seed), False


def _undecided(questions: Sequence[Question], found: Mapping[int, Verdict], looks: Looks, number: int, seed: int) -> dict[int, Verdict]:
    """What is known at a look of the questions that have no verdict there."""
    left = {place: question.part(looks.ends[number]) for place, question in enumerate(questions) if place not in found}
    verdicts = {}
    for place, question in left.items():
        known = _holm({place: question}, len(questions), seed, must=False, plan=False)
        if place in known:
            verdicts[place] = _told(known[place].model_copy(update={"decision": "inconclusive"}), questions[place], looks, number)
    return verdicts


def _told(verdict: Verdict, question: Question, looks: Looks, number: int) -> Verdict:
    members = looks.ends[-1] if question.members is None else int(question.members[: looks.ends[-1]].sum())
    return verdict.model_copy(update={"available": members, "looks": number + 1})


def _useful(times: tuple[float, ...]) -> tuple[float, ...]:
    """`times` with 0 for looks that bring next to nothing new."""
    useful = [time if time - before >= _NEW and time <= 1 - _NEW else 0.0 for before, time in pairwise((0.0, *times[:-1]))]
    return (*useful, 1.0)


def _level(question: Question, times: tuple[float, ...], number: int, spending: Spending) -> Callable[[float], float]:
    least = 0.0 if question.metric.proportion else _TAIL / question.resamples
    used = [place for place, time in enumerate(times) if time > 0]

    def level(alpha: float) -> float:
        if number not in used:
            return 0.0
        return levels([times[place] for place in used], alpha, spending=spending, least=min(least, alpha / 2))[used.index(number)]

    return level
