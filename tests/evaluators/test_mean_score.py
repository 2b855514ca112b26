import numpy as np

from evaluators import METRICS


def score(array, **options):
    return METRICS.make("mean-score", options).record([{"y": np.asarray(array, dtype=np.float64)}], None)[0, 0]


def test_the_score_is_the_column_through_the_function_that_is_asked_for():
    assert score([2.0]) == 2
    assert score([0.0], apply="sigmoid") == 0.5
    assert score([0.0, np.log(3)], apply="softmax") == np.float64(0.75)
    assert score([1.0, 2.0, 3.0], column=0) == 1


def test_of_two_columns_the_last_is_meant():
    assert score([0.25, 0.75]) == 0.75


def test_a_sequence_is_scored_by_its_mean():
    feeds = [{"y": np.array([1.0])}, {"y": np.array([3.0])}]
    assert METRICS.make("mean-score").record(feeds, None).tolist() == [[2]]


def test_a_huge_negative_logit_does_not_overflow():
    assert score([-1e4], apply="sigmoid") == 0
