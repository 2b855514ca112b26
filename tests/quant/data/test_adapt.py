"""From a processor's feeds to a model's: names, spare inputs, types."""

import numpy as np
import pytest

from quant.data.adapt import Adaptation, adaptation, data_inputs
from quant.data.processors import Traits


def test_without_a_need_a_feed_is_passed_on_as_it_is():
    feed = {"x": np.zeros(2)}
    assert Adaptation().apply(feed) is feed


def test_a_nameless_array_goes_into_the_only_input(signature):
    inputs = signature(pixels=("float32", "N", 2)).inputs
    made = adaptation({"": np.zeros(2, np.float32)}, inputs, Traits()).apply({"": np.ones(2, np.float32)})
    assert {name: array.tolist() for name, array in made.items()} == {"pixels": [1, 1]}


def test_a_nameless_array_stays_nameless_where_there_are_two_inputs(signature):
    inputs = signature(a=("float32", "N", 2), b=("float32", "N", 2)).inputs
    assert list(adaptation({"": np.zeros(2, np.float32)}, inputs, Traits()).apply({"": np.zeros(2, np.float32)})) == [""]


def test_optional_inputs_are_left_out_and_others_are_not(signature):
    inputs = signature(input_ids=("int64", "N", "T")).inputs
    feed = {name: np.zeros(3, np.int64) for name in ("input_ids", "token_type_ids", "other")}
    assert list(adaptation(feed, inputs, Traits(optional=frozenset({"token_type_ids"}))).apply(feed)) == ["input_ids", "other"]


@pytest.mark.parametrize(
    ("given", "wanted", "traits", "expected"),
    [
        ("float64", "float32", Traits(floats_narrow=True), "float32"),
        ("float64", "float32", Traits(), "float64"),
        ("float64", "float16", Traits(floats_narrow=True), "float64"),
        ("int64", "int32", Traits(integers_fit=True), "int32"),
        ("int64", "int32", Traits(floats_narrow=True), "int64"),
        ("int64", "float32", Traits(integers_fit=True, floats_narrow=True), "int64"),
        ("float32", "bfloat16", Traits(floats_narrow=True), "float32"),
    ],
)
def test_types_change_only_where_the_processor_allows_it(signature, given, wanted, traits, expected):
    feed = {"x": np.zeros(2, given)}
    assert adaptation(feed, signature(x=(wanted, "N", 2)).inputs, traits).apply(feed)["x"].dtype.name == expected


def test_the_data_do_not_feed_a_state(signature):
    assert [spec.name for spec in data_inputs(signature(x=("float32", "N"), h=("float32", "N")), {"h"})] == ["x"]
