import numpy as np
import pytest

from evaluators.outputs import check_class, check_number, check_text, log_softmax, pick, probabilities, rows_of
from quant.errors import DataError


@pytest.mark.parametrize("label", [0, 3, np.int64(2), True, np.array([0, 1, 5])], ids=str)
def test_classes_are_accepted(label):
    check_class(label)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (None, "no label"),
        (-1, "label -1 is no class"),
        (1.5, "label 1.5 is no class"),
        ("cat", "label 'cat' is not a class"),
        (np.array([0, -100]), "label -100 is no class"),
    ],
    ids=str,
)
def test_what_is_no_class_is_refused_with_its_value(label, message):
    with pytest.raises(DataError, match=message):
        check_class(label)


def test_an_ignored_label_is_accepted():
    check_class(np.array([0, -100]), ignore=-100)


def test_numbers_and_texts_are_told_apart():
    check_number(2)
    check_number(np.array([0.5, -1]))
    check_text("good")
    with pytest.raises(DataError, match="label None is no text"):
        check_text(None)
    with pytest.raises(DataError, match="'" + "x" * 56 + r"\.\.\."):
        check_number("x" * 500)


def test_feeds_are_stacked_and_one_feed_is_left_as_it_is():
    assert pick([{"y": np.zeros(3)}], None).shape == (3,)
    assert pick([{"y": np.zeros(3)}, {"y": np.zeros(3)}], "y").shape == (2, 3)


def test_rows_pair_with_labels_over_any_leading_axes():
    scores, labels = rows_of(np.arange(24).reshape(2, 3, 4), np.zeros((2, 3)))
    assert scores.shape == (6, 4)
    assert labels.shape == (6,)
    assert rows_of(np.zeros((1, 10)), 3)[0].shape == (1, 10)
    assert rows_of(np.float32(0.5), 1)[0].shape == (1, 1)


def test_softmax_and_sigmoid_are_scipys_even_for_large_scores():
    from scipy.special import expit, softmax

    scores = np.array([[1e3, 999.0, -1e3], [0.1, -2, 3]])
    assert probabilities(scores, "softmax") == pytest.approx(softmax(scores, axis=1), rel=1e-12)
    assert probabilities(scores, "sigmoid") == pytest.approx(expit(scores), rel=1e-12, abs=1e-300)
    assert log_softmax(scores)[0, 0] == pytest.approx(-np.log1p(np.exp(-1)), rel=1e-12)
