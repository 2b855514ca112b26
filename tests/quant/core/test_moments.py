"""Second moments: exact in any order, and right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.core.moments import MomentSum, unpacked


@given(st.integers(0, 50), st.permutations(range(6)), st.integers(-12, 12))
@settings(max_examples=40, deadline=None)
def test_the_order_of_batches_changes_no_bit(seed, order, spread):
    rng = np.random.default_rng(seed)
    batches = [(rng.normal(size=(4, 3, 5)) * 10.0 ** (spread * k / 5)).astype(np.float32) for k in range(6)]
    sums = MomentSum(5), MomentSum(5)
    for total, numbers in zip(sums, (range(6), order), strict=True):
        for number in numbers:
            total.add(batches[number])
    assert sums[0].mean().tobytes() == sums[1].mean().tobytes()


@given(st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_moments_are_those_of_all_vectors_at_once(seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(size=(n, 7)).astype(np.float32) * np.exp(rng.normal(size=7)).astype(np.float32) for n in (1, 20, 3)]
    total = MomentSum(7)
    for batch in batches:
        total.add(batch)
    rows = np.concatenate(batches).astype(np.float64)
    exact = rows.T @ rows / len(rows)
    # Each of three batches loses less than 2^-31 of its largest product, of which the sum is larger still.
    assert np.abs(unpacked(total.mean()) - exact).max() <= 3 * 2.0**-31 * np.abs(exact).max()


def test_what_was_never_seen_has_no_moments():
    assert unpacked(MomentSum(3).mean()).tolist() == np.zeros((3, 3)).tolist()


def test_zeros_count_as_vectors():
    total = MomentSum(1)
    total.add(np.float32([[2.0], [0.0]]))
    total.add(np.float32([[0.0], [0.0]]))
    assert total.mean() == pytest.approx([1.0])
