"""Conditions keep the rows that meet every bound."""

import pytest

from quant.data.conditions import keeps
from quant.data.record import Record
from quant.errors import DataError
from quant.recipe.schema import Condition


def kept(values, **condition):
    return [v for v in values if keeps((Condition(column="x", **condition),), Record(0, {"x": v}, "a.csv row 3", None))]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"above": 0.5}, [2]),
        ({"below": 0.5}, [-3, 0, 0.4]),
        ({"magnitude_above": 0.4}, [-3, 0.5, 2]),
        ({"above": -1, "below": 1}, [0, 0.4, 0.5]),
        ({"equals": 2}, [2]),
        ({"equals": "2"}, [2]),
        ({"any_of": (0, "0.5")}, [0, 0.5]),
    ],
    ids=str,
)
def test_bounds_are_open_and_all_must_hold(condition, expected):
    assert kept([-3, 0, 0.4, 0.5, 2], **condition) == expected


def test_missing_values_meet_nothing():
    assert kept([None, float("nan"), "", 1], below=5) == [1]
    assert kept([None, 1], equals=1) == [1]


def test_numbers_written_as_text_can_be_compared():
    assert kept(["1.5", "0.2"], above=1) == ["1.5"]


def test_a_bound_on_words_names_the_row():
    with pytest.raises(DataError, match=r"a\.csv row 3: 'x' is no number: 'many'"):
        kept(["many"], above=1)
