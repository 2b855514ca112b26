"""`schemes: auto`: on each target one scheme after the other, the cheapest first, until one is all that is wanted.

Gates and sizes decide the same wherever a recipe runs. Times do not: which scheme is the first that is fast enough depends on the machine.
"""

from __future__ import annotations

from evaluators.latency import Latency
from evaluators.memory import FirstRun
from quant.engine.candidates import Built, Workshop
from quant.engine.summary import Outcome
from quant.engine.timing import time_artifacts
from quant.recipe.schema import AutoSchemes
from quant.report.document import Choice
from quant.report.words import fixed
from quant.schemes import cost

_DIGITS = 3


def cheapest_first(workshop: Workshop, target: str) -> list[str]:
    """The recipe's schemes in the order in which they are tried on `target`: as listed, or by what they take where they are `auto`.

    Where a speed is wanted, those come last whose format the engine only emulates here: none of them can have it.
    """
    bound, engine = workshop.bound, workshop.bound.targets[target]
    wanted = bound.loaded.recipe.auto
    if wanted is None:
        return list(bound.tried)
    in_time = wanted.speed is not None and not engine.ahead_of_time and engine.available().available

    def order(title: str) -> tuple[bool, tuple[int, int]]:
        scheme = bound.schemes[title]
        return in_time and engine.emulates(scheme.base) is not None, cost(scheme)

    return sorted(bound.tried, key=order)


class Choosing:
    """What has been found so far on each target.

    Args:
        workshop: What the candidates share.
        wanted: What a candidate must be, besides passing its gates.
    """

    def __init__(self, workshop: Workshop, wanted: AutoSchemes) -> None:
        self._workshop, self._wanted = workshop, wanted
        self._found: dict[str, str] = {}
        self._said: dict[str, list[str]] = {}
        self._fast: set[str] = set()
        self.latency: dict[str, Latency] = {}
        self.first: dict[str, FirstRun] = {}

    def found(self, target: str) -> str | None:
        """The scheme on `target` that is all that is wanted; None as long as there is none."""
        return self._found.get(target)

    def take(self, outcome: Outcome, base: Built | None) -> None:
        """Decide on a candidate; its time is measured first, in turns with FP32's, where that says anything."""
        if base is not None and outcome.built is not None and outcome.measured is not None and not self._elsewhere(outcome.target):
            latency, first = time_artifacts(self._workshop, [base, outcome.built], title=outcome.built.name)
            self.latency |= latency
            self.first |= first
            if outcome.emulated is None:
                self._fast.add(outcome.target)
        said, enough = self._judged(outcome, base)
        self._said.setdefault(outcome.target, []).append(f"{outcome.scheme} {said}")
        if enough:
            self._found[outcome.target] = outcome.scheme

    def choices(self) -> tuple[Choice, ...]:
        """What was chosen on each target, and why."""
        return tuple(Choice(target=target, scheme=self.found(target), steps=tuple(said)) for target, said in self._said.items())

    def _elsewhere(self, target: str) -> bool:
        return self._workshop.bound.targets[target].ahead_of_time

    def _judged(self, outcome: Outcome, base: Built | None) -> tuple[str, bool]:
        """(What is said of a candidate, whether it is all that is wanted)."""
        built, wanted = outcome.built, self._wanted
        if outcome.verdict != "pass" or built is None:
            return {"inconclusive": "neither passes nor fails", None: "was not judged"}.get(outcome.verdict, "fails"), False
        size = None if base is None else built.artifact.size_bytes / base.artifact.size_bytes
        if wanted.size is not None and (size is None or size > wanted.size):
            has = "its engine takes no FP32 to have a size beside" if size is None else f"has {fixed(size, _DIGITS)} of FP32's size"
            return f"passes, but {has} (wanted: {wanted.size:g})", False
        if wanted.speed is None:
            return "passes", True
        if self._elsewhere(outcome.target):
            return "passes; its engines run on other machines, so that there is no time to go by, and the gate alone decides", True
        if outcome.emulated is not None:
            only = outcome.target not in self._fast
            return f"passes, {'and' if only else 'but'} its format is emulated here{', as all are: the gate alone decides' if only else ''}", only
        time = self.latency[built.name].ratio_upper
        enough = time <= wanted.speed
        return f"passes, {'and takes at most' if enough else 'but takes up to'} {fixed(time, _DIGITS)} of FP32's time (wanted: {wanted.speed:g})", enough
