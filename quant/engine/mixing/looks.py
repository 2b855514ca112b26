"""Plans are judged on the evaluation samples, one after the other, until one passes, nothing is left, or all looks are used up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from quant.engine.mixing.ground import FLOAT
from quant.engine.mixing.shares import Shares
from quant.engine.summary import Outcome
from quant.planner.further import further
from quant.planner.loop import Closed, Joint, Step
from quant.planner.moves import Choices, quantizes
from quant.report.mixing import PlanStep
from quant.report.words import count, plain

_ORDER = {None: 0, "pass": 0, "inconclusive": 1, "fail": 2}


@dataclass(frozen=True)
class Alone:
    """A scheme alone that passed on the evaluation samples.

    Args:
        title: Its title.
        choices: Layer -> format.
    """

    title: str
    choices: Choices


@dataclass(frozen=True)
class Looked:
    """What came of the looks.

    Args:
        choices: The plan that is delivered; None when there is none.
        outcome: What became of it.
        ended: How it was found, in one sentence.
        steps: What was measured and judged after the search, in order.
    """

    choices: Choices | None
    outcome: Outcome | None
    ended: str
    steps: tuple[PlanStep, ...]


@dataclass
class Looks:
    """The looks of one target.

    Args:
        closed: What the search on search samples has found.
        shares: How sure each look has to be.
        judge: Judges a plan, given the share of the error probability that it has.
        measure: Measures a plan on search samples, given the number of the look that it is to pass.
        cost: Name of the cost that is least.
        over: Whether the time is over.
        within: Whether the plan is the most accurate one within budgets, and not the cheapest.
    """

    closed: Closed
    shares: Shares
    judge: Callable[[Choices, float], Outcome]
    measure: Callable[[Choices, int], Joint]
    cost: str
    over: Callable[[], bool]
    within: bool = False
    steps: list[PlanStep] = field(default_factory=list)
    _tried: list[tuple[Choices, Outcome]] = field(default_factory=list)

    def run(self, alone: Alone | None) -> Looked:
        """Judge plans until one passes.

        Args:
            alone: The cheapest scheme alone that has passed: plans that cost as much are not judged, and it is taken where none passes.
        """
        if alone is not None and self._price(alone.choices) >= self._price(self._whole):
            alone = None  # FP32 costs less, and loses nothing
        most = self._price(alone.choices) if alone is not None else float("inf")
        told = self._in_turn(most)
        if told:
            return self._taken(*self._tried[-1], told)
        if alone is not None:
            return self._beside(alone)
        if not self._tried:
            return Looked(None, None, nothing_found(self.closed, self.cost, within=self.within), ())
        choices, outcome = min(reversed(self._tried), key=lambda pair: _ORDER[pair[1].verdict])
        looks = count(len(self._tried), "plan")
        return self._taken(choices, outcome, f"No plan passes: {looks} were judged on the evaluation samples; taken is the one that came nearest")

    def _in_turn(self, most: float) -> str:
        """Judge the plans that search samples lead to, as long as they cost less than `most`; what is said of the one that passes."""
        choices, problem = self.closed.best, self.closed.problem
        for number, share in enumerate(self.shares.plans):
            if choices is None or self._price(choices) >= most:
                return ""
            now = choices
            joint = self.measure(now, number)
            if self._look(now, joint, share).verdict in {"pass", None}:
                if number:
                    return f"The first plan did not pass on the evaluation samples; the one of look {number + 1} does"
                return first_found(self.closed, within=self.within)
            if number + 1 == len(self.shares.plans):
                return ""

            def measured(trial: Choices, look: int = number + 1) -> Joint:
                return self.measure(trial, look)

            found = further(problem, now, joint, measured, cost=self.cost, over=self.over)
            self.steps += [plan_step(step) for step in found.steps]
            choices = found.choices
        return ""

    def _beside(self, alone: Alone) -> Looked:
        """A plan of the front that costs no more than a scheme that passed and is predicted to be no worse, if it passes; else the scheme."""
        passes = f"{alone.title} passes on the evaluation samples and costs less than any plan that passed there or on the search samples"
        better = self._better(alone.choices)
        if better is not None and self.shares.beside > 0:
            outcome = self._look(better, self.measure(better, 0), self.shares.beside)
            if outcome.verdict == "pass":
                return self._taken(better, outcome, f"{passes}; taken is one of the front that costs no more and is predicted to be no worse")
        return self._taken(alone.choices, self.judge(alone.choices, 1.0), f"{passes}; taken is that scheme alone")

    def _better(self, choices: Choices) -> Choices | None:
        error, price = self.closed.problem.error(choices).value, self._price(choices)
        found = [s.choices for s in self.closed.front if s.costs[self.cost] <= price and s.error.value <= error]
        known = [dict(tried) for tried, _ in self._tried]
        return found[0] if found and quantizes(found[0]) and dict(found[0]) not in [dict(choices), *known] else None

    def _look(self, choices: Choices, joint: Joint, share: float) -> Outcome:
        outcome = self.judge(choices, share)
        self._tried.append((choices, outcome))
        predicted = self.closed.problem.error(choices)
        step = Step("look", choices, predicted, self._price(choices), joint, f"{len(self._tried)} at the evaluation samples")
        said = _said(outcome)
        self.steps.append(plan_step(step).model_copy(update={"passes": outcome.verdict in {"pass", None}, "said": said}))
        return outcome

    def _taken(self, choices: Choices, outcome: Outcome, told: str) -> Looked:
        return Looked(choices, outcome, ended(told, choices, len(self.closed.steps) + sum(s.action != "look" for s in self.steps)), tuple(self.steps))

    @property
    def _whole(self) -> Choices:
        return dict.fromkeys(self.closed.problem.effects, FLOAT)

    def _price(self, choices: Choices) -> float:
        return self.closed.problem.costs[self.cost].total(choices)


def first_found(closed: Closed, *, within: bool) -> str:
    """What the plan is that the search has found."""
    if within:
        return "The most accurate plan within the budgets passes"
    return "The cheapest plan that passes" if closed.in_time else "The best plan when the time was over"


def nothing_found(closed: Closed, cost: str, *, within: bool = False) -> str:
    """Why there is no plan."""
    if within:
        if closed.steps:
            return f"No quantization fits: the most accurate plan within the budgets does not pass on the search samples ({closed.steps[-1].joint.told})."
        return "Nothing is to be quantized: FP32 itself keeps to the budgets, and is the most accurate."
    if closed.in_time and closed.front and not quantizes(closed.front[0].choices):
        table = closed.problem.costs[cost]
        return f"Nothing is to be won: FP32 costs least of all plans ({table.total(closed.front[0].choices):.3g} {table.unit})."
    return "No quantization fits: no plan passes on the search samples." if closed.in_time else "The time was over before any plan passed."


def ended(told: str, choices: Choices, measured: int) -> str:
    """How a plan was found, in one sentence."""
    return f"{told}: {quantized(choices)} of {count(len(choices), 'layer')} quantized, found by measuring {count(measured, 'plan')}."


def quantized(choices: Mapping[str, str]) -> int:
    """Number of layers that are quantized."""
    return sum(f != FLOAT for f in choices.values())


def plan_step(step: Step) -> PlanStep:
    """The report's row of a plan that was measured."""
    return PlanStep(
        action=step.action,
        told=step.told,
        quantized=quantized(step.choices),
        predicted=step.predicted.value,
        predicted_error=step.predicted.error,
        measured=step.joint.error,
        measured_error=step.joint.standard_error,
        cost=step.cost,
        passes=step.joint.passes,
        said=step.joint.told,
    )


def _said(outcome: Outcome) -> str:
    gates = [
        f"{v.decision}: drops by {v.drop:.3g}, at most {v.drop_upper:.3g} of {v.limit:g} at {plain(100 * v.confidence)} %"
        for v in (outcome.verdicts or {}).values()
    ]
    return "; ".join([*gates, *([outcome.reason] if outcome.reason else [])])
