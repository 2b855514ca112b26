"""A mixed plan that does not hold up on the evaluation samples: what comes next, and how sure its verdict is."""

import dataclasses
from functools import cache

import numpy as np
import pytest

import quant
from evaluators.accuracy import Accuracy
from evaluators.gate import gate
from quant.core.costs import CostTable, LayerCost
from quant.engine.mixing.looks import Alone, Looks
from quant.engine.mixing.shares import Shares
from quant.engine.summary import Outcome
from quant.planner.front import front
from quant.planner.loop import Closed, Joint
from quant.planner.problem import Effect, Problem

EFFECTS = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
EVERYWHERE = dict.fromkeys(EFFECTS, "int8")
ALPHA = 0.05


@pytest.fixture
def closed():
    """A search that found INT8 throughout to pass."""
    rows = tuple(LayerCost(layer=name, costs={"fp32": 2.0, "int8": 1.0}) for name in EFFECTS)
    table = CostTable(kind="made up", unit="ms", estimated=False, source="by hand", layers=rows)
    problem = Problem({name: {"fp32": Effect(0.0), "int8": Effect(value)} for name, value in EFFECTS.items()}, {"time": table})
    return Closed(EVERYWHERE, (), front(problem, cost="time"), problem, in_time=True)


def measured(choices, _look=0):
    return Joint(sum(EFFECTS[name] for name, chosen in choices.items() if chosen == "int8"), 0.0, passes=True)


class Judge:
    """Passes plans of at most so many layers, and remembers what it was asked."""

    def __init__(self, most, otherwise="fail"):
        self.most, self.otherwise, self.asked = most, otherwise, []

    def __call__(self, choices, share):
        number = sum(chosen == "int8" for chosen in choices.values())
        self.asked.append((number, share))
        passes = number <= self.most
        outcome = Outcome("mixed", "engine", reason=f"{number} layers", fails=not passes and self.otherwise == "fail")
        return _Judged(outcome, "pass" if passes else self.otherwise)


class _Judged(Outcome):
    """An outcome with a verdict that was not reached by a gate."""

    def __init__(self, outcome, verdict):
        super().__init__(**{field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)})
        object.__setattr__(self, "_made", verdict)

    @property
    def verdict(self):
        return self._made


def looks(closed, judge, *, shares=None, over=bool):
    return Looks(closed, shares or Shares.of(3, 1), judge, measured, "time", over)


def test_the_first_plan_that_passes_is_taken_and_nothing_else_is_judged(closed):
    judge = Judge(most=4)
    found = looks(closed, judge).run(None)
    assert judge.asked == [(4, 0.4)]
    assert (found.choices, found.ended) == (EVERYWHERE, "The cheapest plan that passes: 4 of 4 layers quantized, found by measuring 0 plans.")


@pytest.mark.parametrize("otherwise", ["fail", "inconclusive"])
def test_after_a_plan_that_does_not_pass_one_with_half_of_its_error_is_judged_more_strictly(closed, otherwise):
    judge = Judge(most=2, otherwise=otherwise)
    found = looks(closed, judge).run(None)
    assert judge.asked == [(4, 0.4), (2, 0.2)], "0.4 and 0.3 of 1.0 are given back"
    assert [(step.action, step.passes) for step in found.steps] == [("look", False), ("give back", True), ("look", True)]
    assert found.outcome.verdict == "pass"
    assert found.ended.startswith("The first plan did not pass on the evaluation samples; the one of look 2 does: 2 of 4 layers")


def test_success_by_giving_back_all_but_the_very_last_group_is_success(closed):
    judge = Judge(most=1)
    found = looks(closed, judge).run(None)
    assert [number for number, _ in judge.asked] == [4, 2, 1]
    assert (found.outcome.verdict, found.choices["d"]) == ("pass", "int8")


def test_when_nothing_is_left_the_plan_that_came_nearest_is_told(closed):
    judge = Judge(most=0, otherwise="inconclusive")
    found = looks(closed, judge, shares=Shares.of(5, 1)).run(None)
    assert [number for number, _ in judge.asked] == [4, 2, 1], "of one layer nothing can be given back"
    assert found.outcome.verdict == "inconclusive"
    assert found.ended.startswith("No plan passes: 3 plans were judged on the evaluation samples; taken is the one that came nearest: 1 of 4")


def test_looks_are_bounded(closed):
    judge = Judge(most=0)
    looks(closed, judge, shares=Shares.of(2, 1)).run(None)
    assert [number for number, _ in judge.asked] == [4, 2]


def test_when_the_time_is_over_no_other_plan_is_looked_for(closed):
    judge = Judge(most=2)
    found = looks(closed, judge, over=lambda: True).run(None)
    assert (len(judge.asked), found.outcome.verdict) == (1, "fail")


def test_a_scheme_alone_that_passes_is_taken_when_no_plan_below_it_passes(closed):
    """INT8 throughout costs as much as the plan: that is not judged again, and nothing else costs as little."""
    judge = Judge(most=4)
    found = looks(closed, judge).run(Alone("int8", EVERYWHERE))
    assert judge.asked == [(4, 1.0)], "it is the scheme, whose verdict there is already"
    assert found.ended.startswith("int8 passes on the evaluation samples")
    assert "taken is that scheme alone: 4 of 4 layers" in found.ended


def test_a_plan_that_beats_a_scheme_that_passes_has_a_look_of_its_own(closed):
    """A scheme of three layers that costs more than INT8 on `b`, `c` and `d` alone would, and has more error: that plan is judged beside it."""
    scheme = {"a": "int8", "b": "int8", "c": "int8", "d": "fp32"}
    judge = Judge(most=3)
    found = looks(dataclasses.replace(closed, best=None), judge).run(Alone("int8", scheme))
    assert judge.asked == [(3, 0.2)]
    assert {name: found.choices[name] for name in "abcd"} == {"a": "fp32", "b": "int8", "c": "int8", "d": "int8"}
    assert "taken is one of the front that costs no more and is predicted to be no worse" in found.ended


def test_where_that_plan_does_not_pass_the_scheme_is_taken(closed):
    scheme = {"a": "int8", "b": "int8", "c": "int8", "d": "fp32"}
    judge = Judge(most=2)
    found = looks(dataclasses.replace(closed, best=None), judge).run(Alone("int8", scheme))
    assert judge.asked == [(3, 0.2), (3, 1.0)]
    assert found.choices == scheme


def test_a_scheme_that_costs_more_than_fp32_is_no_plan_and_nothing_is_said_to_be_won(closed):
    rows = tuple(LayerCost(layer=name, costs={"fp32": 1.0, "int8": 1.5}) for name in EFFECTS)
    table = CostTable(kind="made up", unit="ms", estimated=False, source="by hand", layers=rows)
    problem = dataclasses.replace(closed.problem, costs={"time": table})
    found = looks(Closed(None, (), front(problem, cost="time"), problem, in_time=True), Judge(most=4)).run(Alone("int8", EVERYWHERE))
    assert (found.choices, found.outcome) == (None, None)
    assert found.ended == "Nothing is to be won: FP32 costs least of all plans (4 ms)."


def test_shares_of_all_looks_add_up_to_no_more_than_there_is():
    for count in range(1, 12):
        for schemes in range(5):
            shares = Shares.of(count, schemes)
            assert sum(shares.plans) + schemes * shares.beside == pytest.approx(1.0)


def test_bad_plans_pass_no_more_often_than_one_look_would():
    """Three plans that drop by just what is allowed, judged in turn: at the full level each they pass in 1 - 0.95³ = 14 %, with shares in at most 5 %."""
    random = np.random.default_rng(3)
    n, trials, limit = 300, 20_000, 0.05
    lost = random.binomial(n, limit, size=(trials, 3))  # samples that each plan gets wrong, and FP32 right

    @cache
    def passes(wrong, alpha):
        candidate = np.ones((n, 1))
        candidate[:wrong] = 0
        metric = Accuracy(Accuracy.Options())
        verdict = gate(metric, np.ones((n, 1)), candidate=candidate, groups=np.arange(n), max_drop=limit, errors=(alpha, alpha), plan=False)
        return verdict.decision == "pass"

    def rate(shares):
        return np.mean([any(passes(int(wrong), ALPHA * share) for wrong, share in zip(plans, shares, strict=True)) for plans in lost])

    spread = 3 * np.sqrt(ALPHA * (1 - ALPHA) / trials)
    assert rate(Shares.of(3, 0).plans) <= ALPHA + spread
    assert rate((1.0, 1.0, 1.0)) > ALPHA + spread, "the case has the power to show it"


@pytest.fixture
def treacherous(project, digits):
    """Evaluation pictures have a large value in a pixel that FP32 does not look at, and that dynamic ranges do: the first layer drowns there only."""
    w0 = digits.weights["w0"].copy()
    w0[0] = 0
    project.weights(w0=w0)
    seen, other = digits.x.copy(), digits.x.copy()
    seen[:, 0], other[:, 0] = 400.0, 40.0
    project.data(x=seen)
    np.savez(project.folder / "search.npz", x=other[:600], y=digits.y[:600])
    splits = {
        "calibration": 64,
        "search": {"samples": 500, "data": {"source": "search.npz"}},
        "evaluation": 700,
    }
    project.write({"data": {"splits": splits, "overlap": "allow"}, "schemes": ["int8-dynamic"], "transforms": [], "plan": {"minimize": "size"}})
    return project


def test_a_plan_that_fails_on_the_evaluation_samples_gives_back_what_recovers_most_and_passes(treacherous):
    report = quant.run(treacherous.recipe, output=treacherous.output).report
    found = {candidate.scheme: candidate for candidate in report.candidates}
    assert (found["int8-dynamic"].verdict, found["mixed"].verdict) == ("fail", "pass")
    assert {c.layer: c.format for c in found["mixed"].plan} == {"dense/first": "fp32", "dense/second": "int8"}
    [row] = report.timings.mixing
    assert [step.passes for step in row.steps if step.action == "look"] == [False, True]
    assert found["mixed"].gates[0].verdict.confidence == pytest.approx(1 - 0.05 / 5)
    assert "the one of look 2 does" in row.ended


@pytest.mark.slow
def test_a_plan_that_passed_in_a_second_look_is_validated_as_strictly_as_it_was_judged(treacherous):
    done = quant.run(treacherous.recipe, output=treacherous.output)
    found = quant.validate(done.folder, data=treacherous.recipe, candidate="mixed", load_s=0.3)
    said = {check.check: check for check in found.checks}
    assert (said["report"].status, said["gate"].status) == ("ok", "ok"), found.sentence
