"""Arrays: columns as inputs."""

import numpy as np
import pytest

from quant.errors import DataError


def test_columns_are_inputs_of_the_same_name_but_the_label_is_none(opened, record):
    processor = opened("arrays", ("a", "b", "y", "file"), label_column="y")
    (feed,) = processor.feeds(record(a=[[1, 2]], b=0.5, y=1, file="x.npz"))
    assert {name: (array.dtype.name, array.tolist()) for name, array in feed.items()} == {"a": ("int64", [[1, 2]]), "b": ("float64", 0.5)}


def test_columns_can_be_renamed_and_retyped(opened, record):
    processor = opened("arrays", ("a", "b"), inputs={"a": "input_ids"}, dtypes={"input_ids": "int32"})
    (feed,) = processor.feeds(record(a=[1, 2], b=3))
    assert list(feed) == ["input_ids"]
    assert feed["input_ids"].dtype == np.int32


def test_steps_are_feeds(opened, record):
    feeds = opened("arrays", ("a", "b"), steps=True).feeds(record(a=np.arange(6).reshape(3, 2), b=np.arange(3)))
    assert [(feed["a"].tolist(), int(feed["b"])) for feed in feeds] == [([0, 1], 0), ([2, 3], 1), ([4, 5], 2)]


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({"x": [[1], [1, 2]]}, {}, "data row 3: 'x' is a ragged list"),
        ({"x": None}, {}, "'x' is no array of numbers: 'None'"),
        ({"x": "word"}, {"dtypes": {"x": "float32"}}, "'x' cannot become float32"),
        ({"x": np.zeros((0, 2))}, {"steps": True}, r"sequences of different lengths, or empty ones: \{'x': 0\}"),
    ],
    ids=["ragged", "none", "word", "no-steps"],
)
def test_what_is_no_array_names_the_row(opened, record, values, options, message):
    with pytest.raises(DataError, match=message):
        opened("arrays", ("x",), **options).feeds(record(**values))


def test_options_without_sense_are_refused(opened):
    with pytest.raises(DataError, match=r"recipe.yaml:7: no type is called 'floaty'"):
        opened("arrays", ("x",), dtypes={"x": "floaty"})
    with pytest.raises(DataError, match="no column is left to be an input"):
        opened("arrays", ("y",), label_column="y")
