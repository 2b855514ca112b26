"""Batches: nothing lost, nothing padded, nothing mixed up."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.core.signature import Signature, TensorSpec
from quant.data.batches import Batch, batches, output_axes, safe_batch_size, split_outputs
from quant.data.samples import Sample
from quant.errors import DataError


@dataclass
class Fixed:
    """Samples that were made beforehand."""

    made: list
    pad_values: dict = field(default_factory=dict)
    role: str = "evaluation"
    digest: str = ""

    def __len__(self):
        return len(self.made)

    def __getitem__(self, position):
        return self.made[position]

    def __iter__(self):
        return iter(self.made)


def sequence(*lengths, **kwargs):
    """A sample for each length; sample i holds the number i, as often as its length says."""
    return Fixed([Sample(i, ({"x": np.full(length, i, np.float32)},)) for i, length in enumerate(lengths)], **kwargs)


ANY = (TensorSpec("x", "float32", ("N", "T")),)


def made(samples, inputs=ANY, **kwargs):
    return list(batches(samples, inputs, **kwargs))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=60), st.integers(1, 7))
@settings(max_examples=60)
def test_each_feed_is_in_exactly_one_batch_unpadded_and_belongs_to_its_owner(lengths, batch_size):
    found = made(sequence(*lengths), batch_size=batch_size)
    assert sorted(owner for batch in found for owner in batch.owners) == [(i, 0) for i in range(len(lengths))]
    for batch in found:
        assert batch.rows == len(batch.owners) <= batch_size
        for row, (position, _) in zip(batch.feed["x"], batch.owners, strict=True):
            assert row.tolist() == [position] * lengths[position]


def test_batches_of_one_length_keep_the_order_of_samples():
    assert [batch.owners for batch in made(sequence(2, 2, 2, 2, 2), batch_size=2)] == [((0, 0), (1, 0)), ((2, 0), (3, 0)), ((4, 0),)]


def test_memory_is_bounded_by_the_window():
    """With all lengths different, a feed waits for at most 64 batches' worth of others."""
    seen = []

    class Counting(Fixed):
        def __iter__(self):
            for sample in self.made:
                seen.append(sample.index)
                yield sample

    first = next(batches(Counting(sequence(*range(1, 501)).made), ANY, batch_size=2))
    assert first.owners == ((0, 0),)
    assert len(seen) == 128


def test_several_feeds_of_a_sample_are_told_apart():
    sample = Sample(0, ({"x": np.float32([1, 2])}, {"x": np.float32([3, 4])}))
    (batch,) = made(Fixed([sample]), batch_size=8)
    assert batch.owners == ((0, 0), (0, 1))
    assert batch.feed["x"].tolist() == [[1, 2], [3, 4]]


def test_a_fixed_batch_is_filled_and_the_filling_has_no_owner():
    inputs = (TensorSpec("x", "float32", (4, 2)),)
    found = made(sequence(2, 2, 2, 2, 2, 2), inputs, batch_size=32)
    assert [(batch.rows, len(batch.owners)) for batch in found] == [(4, 4), (4, 2)]
    assert found[1].feed["x"][:, 0].tolist() == [4, 5, 5, 5]
    outputs = split_outputs({"y": found[1].feed["x"] * 10}, found[1], {})
    assert [output["y"].tolist() for output in outputs] == [[40, 40], [50, 50]]


def test_a_model_of_batch_one_gets_one_at_a_time():
    found = made(sequence(2, 2, 2), (TensorSpec("x", "float32", (1, 2)),), batch_size=16)
    assert [batch.feed["x"].shape for batch in found] == [(1, 2)] * 3


def test_batch_axes_of_different_fixed_lengths_are_refused():
    inputs = (TensorSpec("a", "float32", (2, 1)), TensorSpec("b", "float32", (3, 1)))
    sample = Sample(0, ({"a": np.zeros(1, np.float32), "b": np.zeros(1, np.float32)},))
    with pytest.raises(DataError, match=r"different fixed lengths: \{'a': 2, 'b': 3\}"):
        made(Fixed([sample]), inputs, batch_size=2)


def test_the_batch_axis_may_be_another():
    (batch,) = made(sequence(2, 2, 2), (TensorSpec("x", "float32", (2, "N")),), batch_size=8, batch_axes={"x": 1})
    assert batch.feed["x"].tolist() == [[0, 1, 2], [0, 1, 2]]


def test_only_feeds_of_equal_constants_share_a_batch():
    feeds = [{"x": np.full(2, i, np.float32), "rate": np.asarray(rate, np.int64)} for i, rate in enumerate((8, 16, 8, 16, 8))]
    inputs = (TensorSpec("x", "float32", ("N", 2)), TensorSpec("rate", "int64", ()))
    found = made(Fixed([Sample(i, (feed,)) for i, feed in enumerate(feeds)]), inputs, batch_size=4)
    assert [(int(batch.feed["rate"]), [position for position, _ in batch.owners]) for batch in found] == [(8, [0, 2, 4]), (16, [1, 3])]


def test_a_model_without_a_batch_axis_gets_one_feed_as_it_is():
    found = made(sequence(3, 3), (TensorSpec("x", "float32", ("T",)),), batch_size=8, batch_axes={"x": None})
    assert [batch.feed["x"].tolist() for batch in found] == [[0, 0, 0], [1, 1, 1]]


def test_padding_goes_to_the_longest_of_the_batch_where_the_processor_pads():
    found = made(sequence(2, 4, 1, pad_values={"x": -1}), batch_size=2)
    assert [batch.feed["x"].tolist() for batch in found] == [[[0, 0, -1, -1], [1, 1, 1, 1]], [[2]]]


def test_a_feed_that_does_not_fit_is_found_on_the_way():
    samples = sequence(2, 2, 2)
    samples.made[2] = Sample(99, ({"x": np.float32([1, np.nan])},))
    with pytest.raises(DataError, match=r"sample 99: input 'x' is nan at \[1\]"):
        made(samples, batch_size=1)
    samples.made[2] = Sample(99, ({"x": np.float64([1, 2])},))
    with pytest.raises(DataError, match="sample 99: input 'x' is float64"):
        made(samples, batch_size=1)


def batch_of(rows):
    return Batch({"x": np.zeros((rows, 1), np.float32)}, tuple((i, 0) for i in range(rows)), rows)


def test_outputs_are_taken_apart_along_their_batch_axes():
    outputs = {"y": np.arange(6).reshape(2, 3), "h": np.arange(8).reshape(2, 2, 2)}
    one, two = split_outputs(outputs, batch_of(2), {"h": 1})
    assert (one["y"].tolist(), two["y"].tolist()) == ([0, 1, 2], [3, 4, 5])
    assert (one["h"].tolist(), two["h"].tolist()) == ([[0, 1], [4, 5]], [[2, 3], [6, 7]])


def test_an_output_without_a_batch_axis_belongs_to_a_batch_of_one_alone():
    assert split_outputs({"y": np.float32([1, 2, 3])}, batch_of(1), {"y": None})[0]["y"].tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="output 'y' has no batch axis, so a batch of 2 feeds cannot be taken apart"):
        split_outputs({"y": np.float32([1, 2, 3])}, batch_of(2), {"y": None})


def test_an_output_of_another_length_than_the_batch_is_refused():
    with pytest.raises(DataError, match=r"output 'y' has shape \[3, 2\]: not one entry along axis 0 for each of the 2 rows"):
        split_outputs({"y": np.zeros((3, 2))}, batch_of(2), {})
    with pytest.raises(DataError, match=r"output 'y' has shape \[\]"):
        split_outputs({"y": np.zeros(())}, batch_of(2), {})


@pytest.mark.parametrize(
    ("input_shape", "axes", "output_shape", "expected"),
    [
        (("N", 3), {}, ("N", 2), 0),
        (("N", 3), {}, ("T", "N", 2), 1),
        (("N", 3), {}, ("?", 2), 0),
        (("N", 3), {}, (5, 2), None),
        (("N", 3), {}, (), None),
        (("N", 3), {}, None, 0),
        ((1, 3), {}, (1, 2), 0),
        ((4, 3), {}, (2, 2), None),
        ((3, "N"), {"x": 1}, ("N", 2), 0),
        ((3, 4), {"x": None}, (3, 2), None),
    ],
)
def test_the_batch_axis_of_an_output_follows_from_that_of_the_inputs(input_shape, axes, output_shape, expected):
    signature = Signature((TensorSpec("x", "float32", input_shape),), (TensorSpec("y", "float32", output_shape),))
    assert output_axes(signature, axes) == {"y": expected}
    assert safe_batch_size(signature, 8, batch_axes=axes) == (1 if expected is None else 8)
