"""Samples against a signature: every way in which they may not fit, before any work."""

from dataclasses import dataclass

import numpy as np
import pytest

from quant.data.checks import check_finite, check_samples
from quant.data.samples import Sample
from quant.errors import DataError


@dataclass
class Fixed:
    """Samples that were made beforehand."""

    made: list
    role: str = "calibration"
    digest: str = ""

    def __len__(self):
        return len(self.made)

    def __getitem__(self, position):
        return self.made[position]

    def __iter__(self):
        return iter(self.made)


def samples(*feeds):
    return Fixed([Sample(10 + i, feed if isinstance(feed, tuple) else (feed,)) for i, feed in enumerate(feeds)])


X = np.zeros((3, 4), np.float32)


def test_samples_that_fit_are_accepted(signature):
    assert check_samples(samples({"x": X}, {"x": X}), signature(x=("float32", "N", 3, "W"))) == ()


def test_several_feeds_to_a_sample_are_told(signature):
    assert check_samples(samples(({"x": X}, {"x": X})), signature(x=("float32", "N", 3, "W"))) == ("calibration: 2 feeds to a sample",)


@pytest.mark.parametrize(
    ("feed", "inputs", "message"),
    [
        ({"imge": X}, {"image": ("float32", "N", 3, 4)}, "(?s)sample 10: the model has no input 'imge'.*did you mean 'image'"),
        ({"x": X}, {"x": ("float32", "N", 3, 4), "mask": ("int64", "N", "T")}, "sample 10: nothing feeds the model's input 'mask'; the data make 'x'"),
        ({"x": X, "z": X}, {"x": ("float32", "N", 3, 4)}, "the model has no input 'z'"),
        ({"": X}, {"a": ("float32", "N", 3, 4), "b": ("float32", "N", 3, 4)}, "(?s)does not say which of the model's 2 inputs.*one of a, b"),
        ({"x": X.astype(np.float64)}, {"x": ("float32", "N", 3, 4)}, "(?s)input 'x' is float64, the model takes float32.*dtypes: {x: float32}"),
        ({"x": np.zeros(3, np.int32)}, {"x": ("int64", "N", "T")}, "input 'x' is int32, the model takes int64"),
        ({"x": X}, {"x": ("float32", "N", 3, 5)}, r"input 'x' has shape \[3, 4\], the model takes \[3, 5\] without the batch axis"),
        ({"x": X[0]}, {"x": ("float32", "N", 3, 4)}, r"input 'x' has shape \[4\], the model takes \[3, 4\]"),
        ({"x": X[None]}, {"x": ("float32", "N", 3, 4)}, r"(?s)has shape \[1, 3, 4\].*model\.batch_axes: \{x: null\}"),
    ],
    ids=["name", "missing", "extra", "nameless", "float64", "int32", "length", "rank-below", "rank-above"],
)
def test_what_does_not_fit_is_said_with_sample_input_and_value(signature, feed, inputs, message):
    with pytest.raises(DataError, match=message):
        check_samples(samples(feed), signature(**inputs))


def test_inputs_without_a_batch_axis_have_the_model_s_rank(signature):
    sig = signature(x=("float32", 3, 4), rate=("int64",))
    feed = {"x": X, "rate": np.int64(16000).reshape(())}
    check_samples(samples(feed), sig, batch_axes={"x": None})
    with pytest.raises(DataError, match=r"the model takes \[4\] without the batch axis"):
        check_samples(samples(feed), sig)


def test_the_batch_axis_may_be_another(signature):
    check_samples(samples({"x": X}), signature(x=("float32", 3, "N", 4)), batch_axes={"x": 1})


def test_a_state_is_not_fed_by_data(signature):
    check_samples(samples({"x": X}), signature(x=("float32", "N", 3, 4), h=("float32", "N", 8)), state_inputs={"h"})


def test_no_samples_are_an_error(signature):
    with pytest.raises(DataError, match="calibration has no samples"):
        check_samples(samples(), signature(x=("float32", "N")))


def test_a_sample_without_feeds_is_an_error(signature):
    with pytest.raises(DataError, match="sample 10 of calibration makes no feed"):
        check_samples(samples(()), signature(x=("float32", "N")))


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (-np.inf, "-inf")])
def test_what_is_not_finite_is_found_with_sample_input_and_position(value, shown):
    array = X.copy()
    array[1, 2] = value
    with pytest.raises(DataError, match=rf"sample 17: input 'x' is {shown} at \[1, 2\]"):
        check_finite({"ok": X, "x": array}, 17)


def test_integers_and_texts_are_always_finite():
    check_finite({"i": np.array([2**62]), "s": np.array(["nan"])}, 0)
