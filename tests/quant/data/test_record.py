"""Content: equal inputs are equal wherever they come from, and others are not."""

import numpy as np
import pytest
from PIL import Image

from quant.data.record import Blob, Record, content_of, is_missing


def content(**values):
    return content_of(Record(0, values, "row", None), tuple(values))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (5, 5.0),
        (np.float32(0.5), 0.5),
        (True, 1),
        ([1.0, 2.0], [1, 2]),
        (np.arange(3), np.arange(3)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Image.new("RGB", (2, 2)), Image.new("RGB", (2, 2))),
    ],
    ids=["int-float", "float32", "bool", "lists", "arrays", "order-of-keys", "pictures"],
)
def test_equal_values_have_equal_content(one, two):
    assert content(x=one) == content(x=two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (5, "5"),
        (b"a", "a"),
        ("a", "A"),
        (0.1, 0.1 + 2**-56),
        ([[1], [2]], [[1, 2]]),
        (["ab", "c"], ["a", "bc"]),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (None, ""),
        (Image.new("RGB", (2, 2)), Image.new("RGB", (2, 2), "red")),
    ],
    ids=["number-text", "bytes-text", "case", "last-bit", "nesting", "boundaries", "shape", "none", "pictures"],
)
def test_other_values_have_other_content(one, two):
    assert content(x=one) != content(x=two)


def test_a_file_is_compared_by_its_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"same")
    assert content(x=Blob(tmp_path / "a")) == content(x=Blob(tmp_path / "b")) == content(x=b"same")


def test_moving_text_from_one_column_to_the_next_changes_the_content():
    assert content(a="xy", b="z") != content(a="x", b="yz")


@pytest.mark.parametrize(("value", "missing"), [(None, True), ("  ", True), (np.float32("nan"), True), (0, False), ("NA", False), ([], False)])
def test_missing_is_none_nan_or_blank(value, missing):
    assert is_missing(value) is missing
