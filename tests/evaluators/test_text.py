import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.text import TextOptions, edit_distance, normalized, read_text, symbols_of
from quant.errors import DataError


def slow_distance(a, b):
    if not a or not b:
        return len(a) + len(b)
    return min(slow_distance(a[1:], b) + 1, slow_distance(a, b[1:]) + 1, slow_distance(a[1:], b[1:]) + (a[0] != b[0]))


@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_edit_distance_is_the_recursive_definition(first, second):
    assert edit_distance(first, second) == slow_distance(first, second)


def test_known_distances():
    assert edit_distance("", "abc") == 3
    assert edit_distance("intention", "execution") == 5
    assert edit_distance("Saturday", "Sunday") == 3


def test_an_alphabet_of_one_symbol_a_line_may_hold_several_characters_and_a_space():
    assert symbols_of("ab\nc\n \n", 4, 0) == ("", "ab", "c", " ")
    assert symbols_of(["<blank>", "x"], 2, 0) == ("", "x")
    assert symbols_of("xy", 3, -1) == ("x", "y", "")


def test_an_alphabet_that_does_not_fit_is_refused():
    with pytest.raises(DataError, match="2 symbols in the alphabet, but 9 classes"):
        symbols_of("ab", 9, 0)


def test_metadata_that_was_not_filled_in_is_refused():
    with pytest.raises(DataError, match=r"model's metadata, which has none\nhint: .*'character'"):
        read_text([{"y": np.zeros((3, 4))}], TextOptions())


def test_strings_and_classes_are_read_too():
    assert read_text([{"y": np.array(["he", "llo"], dtype=object)}], TextOptions()) == "hello"
    assert read_text([{"y": np.array([1, 1, 0, 2, 1])}], TextOptions(alphabet="ab")) == "aba"


def test_scores_must_have_steps_and_classes():
    with pytest.raises(DataError, match=r"\[3\] is no \[steps, classes\]"):
        read_text([{"y": np.zeros(3)}], TextOptions(alphabet="ab"))


def test_texts_are_brought_into_one_unicode_form():
    options = TextOptions(alphabet="a")
    assert normalized("e\u0301 x", options) == "\u00e9 x"
    assert normalized("a  b\n", options) == "a b"
    assert normalized("\uff21", TextOptions(alphabet="a", unicode="NFKC", ignore=("case",))) == "a"
