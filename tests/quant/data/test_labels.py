"""Labels: where they come from and what they become."""

import numpy as np
import pytest

from quant.data.labels import LabelReader
from quant.data.record import Record
from quant.errors import DataError, RecipeError
from quant.recipe.schema import Label

MISSING = object()


def read(value=MISSING, *, file=None, default=None, names=None, **spec):
    values = ({} if value is MISSING else {"y": value}) | ({"file": file} if file else {})
    label = Label(**spec) if spec else None
    reader = LabelReader(label, columns=tuple(values), default=default, classes=names, where=lambda place: "recipe.yaml:" + ".".join(map(str, place)))
    return reader.read(Record(0, values, "a.csv row 17", None))


@pytest.mark.parametrize(
    ("value", "spec", "expected"),
    [
        (3, {}, 3),
        (np.int32(3), {}, 3),
        (True, {}, 1),
        (0.5, {}, 0.5),
        ("07", {}, 7),
        ("spam", {}, "spam"),
        ("3", {"kind": "text"}, "3"),
        ("3", {"kind": "number"}, 3.0),
        (2.0, {"kind": "class"}, 2),
        (-1.5, {"above": 0}, 0),
        ("0.5", {"above": 0}, 1),
        (0, {"above": 0}, 0),
        ("dog", {"classes": ("cat", "dog")}, 1),
        (-1, {"classes": (-1, 1)}, 0),
        ("1", {"classes": (-1, 1)}, 1),
    ],
)
def test_a_value_becomes_what_the_recipe_says(value, spec, expected):
    found = read(value, column="y", **spec)
    assert found == expected
    assert type(found) is type(expected)


def test_lists_become_arrays():
    found = read([1, 0, 1], column="y")
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [1, 0, 1]


def test_without_a_recipe_s_word_the_default_column_counts_or_there_is_none():
    assert read(4, default="y") == 4
    assert read(4) is None


def test_class_names_of_the_data_give_positions():
    assert read("dog", default="y", names=("cat", "dog")) == 1
    assert read("dog", column="y", kind="text", names=("cat", "dog")) == "dog"


@pytest.mark.parametrize(("file", "expected"), [("deep/0017.jpg", 17), ("imagenet_03_207.jpg", 3)])
def test_a_file_name_gives_its_first_group(file, expected):
    assert read(file=file, file_name=r"(\d+)") == expected


def test_only_the_name_of_a_file_is_searched():
    with pytest.raises(DataError, match=r"a\.csv row 17: file name 'x\.jpg' does not match"):
        read(file="2020/x.jpg", file_name=r"(\d+)")


@pytest.mark.parametrize("value", [None, float("nan"), " "])
def test_a_missing_label_names_the_row(value):
    with pytest.raises(DataError, match=r"(?s)a\.csv row 17: has no label \('y' is empty\).*data\.where"):
        read(value, column="y")


@pytest.mark.parametrize(
    ("value", "spec", "message"),
    [
        ("fish", {"classes": ("cat", "dog")}, "label 'fish' is none of the 2 classes"),
        (5, {"classes": (0, 1)}, "label '5' is none of the 2 classes"),
        (-1, {"kind": "class"}, "label -1 is no class"),
        (1.5, {"kind": "class"}, "label 1.5 is no class"),
        ("dog", {"kind": "class"}, "'label' is no number: 'dog'"),
        ("dog", {"above": 0}, "'y' is no number: 'dog'"),
    ],
)
def test_a_label_that_cannot_be_names_the_row_and_the_value(value, spec, message):
    with pytest.raises(DataError, match=rf"a\.csv row 17: ({message})"):
        read(value, column="y", **spec)


def test_the_nearest_class_is_named():
    reader = LabelReader(Label(column="y", classes=("cat", "dog")), columns=("y",), default=None, classes=None, where=str)
    with pytest.raises(DataError, match="did you mean 'dog'"):
        reader.read(Record(0, {"y": "dogg"}, "row", None))


def test_a_recipe_that_says_too_little_is_told_so():
    with pytest.raises(RecipeError, match=r"(?s)recipe\.yaml:data\.label: the label has no source.*`column` or `file_name`"):
        read(1, kind="class")
    with pytest.raises(DataError, match=r"(?s)recipe\.yaml:data\.label\.column: no column 'yy' for the label.*did you mean 'y'"):
        read(1, column="yy")
    with pytest.raises(DataError, match="these data are not files"):
        read(1, file_name=r"(\d+)")
    with pytest.raises(RecipeError, match="has no group"):
        read(file="a.jpg", file_name=r"\d+")
    with pytest.raises(RecipeError, match="not a regular expression"):
        read(file="a.jpg", file_name=r"(\d+")
