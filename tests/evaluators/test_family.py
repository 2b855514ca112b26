import numpy as np
import pytest

from evaluators import METRICS
from evaluators.family import Looks, Question, judge, judge_in_looks
from evaluators.gate import gate
from evaluators.matched import Counts, drop_lower


def question(n, lost, won=0, *, max_drop=0.02, seed=0, **how):
    """Of n samples so many are lost and won, in an order that the seed gives."""
    rng = np.random.default_rng(seed)
    kind = rng.permutation(np.repeat([1, 2, 0], [lost, won, n - lost - won]))
    base, cand = (kind != 2).astype(float)[:, None], (kind != 1).astype(float)[:, None]
    return Question(METRICS.make("accuracy"), base, cand, np.arange(n), max_drop, **how)


def test_one_question_has_the_verdict_of_the_gate():
    asked = question(300, 9, 2)
    alone = gate(asked.metric, asked.baseline, candidate=asked.candidate, groups=asked.groups, max_drop=0.02)
    assert judge([asked], seed=0) == (alone,)


def test_holm_steps_down_as_far_as_verdicts_fall():
    """p-values of the fails: the first below 0.05 / 3, the second between 0.05 / 3 and 0.05 / 2, the third above 0.05."""
    lower = {level: [drop_lower(Counts(216, lost, 0), 1 - 0.05 / level) for lost in (20, 10, 6)] for level in (1, 2, 3)}
    assert [bound > 0.02 for bound in lower[3]] == [True, False, False]
    assert [bound > 0.02 for bound in lower[2]] == [True, True, False]
    assert [bound > 0.02 for bound in lower[1]] == [True, True, False]
    found = judge([question(216, 20), question(216, 10), question(216, 6)], seed=0)
    assert [(v.decision, v.family) for v in found] == [("fail", 3), ("fail", 2), ("inconclusive", 1)]
    together = judge([question(216, 10)] * 3, seed=0)
    assert {(v.decision, v.family) for v in together} == {("inconclusive", 3)}


def test_a_pass_needs_no_correction_as_all_must_pass():
    one, three = judge([question(500, 0)], seed=0), judge([question(500, 0)] * 3, seed=0)
    assert {v.decision for v in three} == {"pass"}
    assert {v.drop_upper for v in three} == {one[0].drop_upper}


def test_a_slice_is_judged_by_its_own_samples():
    whole = question(400, 20)
    members = np.zeros(400, bool)
    members[:150] = True
    found = judge([Question(whole.metric, whole.baseline, whole.candidate, whole.groups, 0.02, slice="label 3", members=members)], seed=0)[0]
    assert (found.slice, found.samples) == ("label 3", 150)
    assert found.value == whole.candidate[:150].mean()


@pytest.mark.parametrize(("lost", "decision"), [(0, "pass"), (400, "fail")])
def test_a_clear_case_ends_early_and_says_how_many_samples_were_looked_at(lost, decision):
    looks = Looks.even(2000, 5, "obrien-fleming")
    asked, seen, done, found = question(2000, lost), 0, False, {}
    while not done:
        before, since = found, seen
        seen = next(end for end in looks.ends if end > seen)
        found, done = judge_in_looks([asked], looks, seen=seen, seed=0, before=before, since=since)
    assert seen < 2000
    assert (found[0].decision, found[0].samples, found[0].available) == (decision, seen, 2000)
    assert judge_in_looks([asked], looks, seen=2000, seed=0)[0] == found, "the same when all looks are made at once"


def test_an_unclear_case_goes_to_the_end_and_says_what_is_needed():
    looks = Looks.even(500, 4, "pocock")
    found, done = judge_in_looks([question(500, 8)], looks, seen=500, seed=0)
    assert done
    assert (found[0].decision, found[0].samples, found[0].looks) == ("inconclusive", 500, 4)
    assert found[0].needed > 0


def test_a_fail_ends_it_and_leaves_the_others_open():
    looks = Looks.even(2000, 5, "obrien-fleming")
    found, done = judge_in_looks([question(2000, 500), question(2000, 30)], looks, seen=looks.ends[1], seed=0)
    assert done
    assert [found[0].decision, found[1].decision] == ["fail", "inconclusive"]
    assert found[1].samples < 2000
