import numpy as np
import pytest

from evaluators import METRICS
from quant.errors import DataError

ALPHABET = "abc "


def scores(classes):
    return [{"y": np.eye(len(ALPHABET) + 1)[classes]}]


def record(kind, classes, label, **options):
    return METRICS.make(kind, {"alphabet": ALPHABET} | options).record(scores(classes), label)


def test_repeats_merge_unless_a_blank_stands_between():
    """Classes: blank 0, a 1, b 2, c 3, space 4."""
    assert record("cer", [1, 1, 0, 1, 2, 2, 0], "aab").tolist() == [[0, 3]]
    assert record("cer", [1, 1, 1, 2], "aab").tolist() == [[1, 3]]


def test_edits_are_summed_over_samples_before_they_are_divided():
    """Edits 1 of 3 and 0 of 9: 1/12, not the mean of the two rates."""
    assert METRICS.make("cer").value(np.array([[1.0, 3], [0, 9]])) == 1 / 12


def test_words_are_counted_by_wer():
    assert record("wer", [1, 4, 2, 4, 3], "a c c").tolist() == [[1, 3]]


def test_an_exact_line_is_one_without_edits():
    assert record("exact-match", [1, 2], "ab").tolist() == [[1]]
    assert record("exact-match", [1, 2], "ac").tolist() == [[0]]


def test_differences_that_do_not_count_are_taken_out_of_both_texts():
    assert record("cer", [1, 2], "A, B!", ignore=["case", "punctuation", "spaces"]).tolist() == [[0, 2]]
    assert record("cer", [1, 2], "AB").tolist() == [[2, 2]]


def test_a_text_label_is_needed_and_all_empty_references_have_no_rate():
    with pytest.raises(DataError, match="label 3 is no text"):
        METRICS.make("cer").check_label(3)
    with pytest.raises(DataError, match="references of all 2 samples are empty"):
        METRICS.make("cer").value(np.array([[0.0, 0], [2, 0]]))


def test_nan_scores_give_nan_edits():
    assert np.isnan(METRICS.make("wer", {"alphabet": "ab"}).record([{"y": np.full((4, 3), np.nan)}], "ab")[0, 0])
