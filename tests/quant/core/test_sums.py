"""Sums in any order."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.core.sums import ExactSum

numbers = st.floats(-1e30, 1e30, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-60)


def total(rows: list[float]) -> float:
    found = ExactSum(1)
    for row in rows:
        found.add(np.array([row]))
    return float(found.value()[0])


@settings(max_examples=150)
@given(st.lists(numbers, max_size=40), st.randoms(use_true_random=False))
def test_the_order_changes_no_bit(rows, random):
    shuffled = random.sample(rows, len(rows))
    assert total(rows).hex() == total(shuffled).hex()


@settings(max_examples=150)
@given(st.lists(numbers, max_size=40))
def test_the_sum_is_that_of_exact_arithmetic(rows):
    exact = math.fsum(rows)
    # A few units in the last place of the sum itself: cancellation costs nothing, unlike in plain addition.
    assert abs(total(rows) - exact) <= 4 * math.ulp(exact)


def test_columns_do_not_touch_each_other():
    found = ExactSum(3)
    for row in ([1.0, 1e20, -3.0], [2.0, 1.0, 0.5], [0.0, -1e20, 0.25]):
        found.add(np.array(row))
    assert found.value().tolist() == [3.0, 1.0, -2.25]


def test_nothing_added_is_zero():
    assert ExactSum(2).value().tolist() == [0.0, 0.0]
