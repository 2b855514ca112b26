"""Steps of an epoch: each sample once, shuffled by the seed alone, in parts."""

import numpy as np
import pytest

from quant.core.signature import Signature, TensorSpec
from quant.twin.training.batches import PARTS, Shuffled, rows_of_part, steps_of
from quant.twin.training.material import Material


def material(batch="N"):
    return Material(None, Signature((TensorSpec("x", "float32", (batch, 2)),), ()), None)


def numbers(samples, count=50):
    return samples([np.float32([i, i]) for i in range(count)], list(range(count)))


def epoch(samples, number, *, seed=0, batch_size=16, batch="N"):
    shuffled = Shuffled(numbers(samples))
    shuffled.shuffle(seed, number)
    return list(steps_of(material(batch), shuffled, batch_size))


def seen(steps):
    return [int(label) for step in steps for part in step for label in part.labels]


def test_every_sample_is_seen_once_in_an_epoch_with_its_own_label(samples):
    steps = epoch(samples, 1)
    assert sorted(seen(steps)) == list(range(50))
    assert all(part.feed["x"][:, 0].astype(int).tolist() == list(part.labels) for step in steps for part in step)
    assert [sum(part.rows for part in step) for step in steps] == [16, 16, 16, 2]
    assert [len(step) for step in steps] == [PARTS, PARTS, PARTS, 1]


def test_the_order_is_that_of_the_seed_and_the_epoch(samples):
    assert seen(epoch(samples, 1)) == seen(epoch(samples, 1))
    orders = [seen(epoch(samples, number, seed=seed)) for seed in (0, 1) for number in (1, 2)]
    assert len({tuple(order) for order in orders}) == 4


@pytest.mark.parametrize("fixed", [1, 3])
def test_a_fixed_batch_is_taken_as_often_as_a_step_needs_and_what_fills_it_does_not_count(samples, fixed):
    steps = epoch(samples, 1, batch_size=8, batch=fixed)
    assert sorted(seen(steps)) == list(range(50))
    assert {part.feed["x"].shape[0] for step in steps for part in step} == {fixed}
    assert all(sum(part.rows for part in step) in range(8, 8 + fixed) for step in steps[:-1])


def test_parts_do_not_depend_on_the_machine():
    assert [rows_of_part(size) for size in (1, 4, 16, 17, 256)] == [4, 4, 4, 5, 64]
