"""Odd requests: which there are for free and fixed batches, open and fixed lengths, and states."""

from types import SimpleNamespace

import numpy as np
import pytest

from quant.core.signature import Signature, TensorSpec
from quant.data.samples import Sample
from quant.stages.running import Feeding
from quant.validation.odd import odd_requests

FILLED = ["all zero", "all at the lowest value of the data", "all at the highest value of the data", "lowest and highest value in turns"]


class Rows(list):
    """Samples with a role."""

    role, digest = "evaluation", "rows"


def workshop(shape, lengths, *, state=None, extra=()):
    """A workshop of one input `x` of the shape, and a sample of each length that counts on from 1."""
    samples = Rows()
    for index, length in enumerate(lengths):
        start = sum(lengths[:index]) + 1
        samples.append(Sample(index, ({"x": np.arange(start, start + length, dtype=np.float32)},)))
    signature = Signature((TensorSpec("x", "float32", shape), *extra), (TensorSpec("y", "float32", shape), *extra))
    recipe = SimpleNamespace(**{name: SimpleNamespace(batch_size=size) for name, size in (("evaluation", 2), ("calibration", 3), ("latency", 1))})
    bound = SimpleNamespace(loaded=SimpleNamespace(recipe=recipe))
    prepared = SimpleNamespace(data=SimpleNamespace(roles={"evaluation": samples}), feeding=lambda _bound, size: Feeding(signature, size, state or {}))
    return SimpleNamespace(bound=bound, prepared=prepared)


def shown(found):
    return {request.name: request.feed["x"].tolist() for request in found}


def test_a_free_batch_is_asked_for_at_its_largest_and_what_is_filled_holds_what_the_data_hold():
    found = odd_requests(workshop(("N", 2), [2, 2]))
    assert [request.name for request in found] == ["batch 1", "batch 3, the largest", *FILLED]
    told = shown(found)
    assert told["batch 1"] == [[1, 2]]
    assert told["batch 3, the largest"] == [[1, 2], [3, 4], [1, 2]], "over and over where there are fewer"
    assert [told[name] for name in FILLED] == [[[0, 0]], [[1, 1]], [[4, 4]], [[1, 4]]]
    assert all(request.feed["x"].dtype == np.float32 for request in found)


@pytest.mark.parametrize(("batch", "name"), [(1, "batch 1"), (4, "batch 4, the only one that the model takes")])
def test_a_fixed_batch_is_asked_for_in_no_other_size(batch, name):
    found = odd_requests(workshop((batch, 2), [2, 2]))
    assert [request.name for request in found] == [name, *FILLED]
    assert {request.feed["x"].shape for request in found} == {(batch, 2)}


def test_open_lengths_are_asked_for_at_their_ends():
    told = shown(odd_requests(workshop(("N", "L"), [3, 1, 5, 2])))
    assert told["the shortest"] == [[4]]
    assert told["the longest"] == [[5, 6, 7, 8, 9]]
    assert told["batch 3, the largest"] == [[1, 2, 3]] * 3, "of samples of one length"


def test_a_state_starts_at_zero_and_is_filled_with_nothing():
    state = TensorSpec("state", "float32", (1, 2))
    found = odd_requests(workshop((1, 2), [2, 2], state={"state": "state"}, extra=(state,)))
    assert [request.name for request in found] == ["batch 1", *FILLED]
    assert all(not request.feed["state"].any() for request in found)
