"""Rounding up or down: against trying every choice, and what it must never do."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.core.rounding.descent import round_up_or_down, rounding_cost


def around(weights, scale=1.0):
    return np.floor(weights / scale) * scale, np.ceil(weights / scale) * scale


def layer(seed, groups=1, rows=4, columns=40):
    """A weight, and second moments of inputs whose channels are correlated and of different size."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(groups, 300, columns)) @ rng.normal(size=(groups, columns, columns)) * np.exp(rng.normal(size=columns))
    return rng.normal(size=(groups, rows, columns)) * 9, inputs.transpose(0, 2, 1) @ inputs / 300


def costs_of_all_choices(weights, moments):
    floor = np.floor(weights)
    errors = np.array([floor + up - weights for up in product((0, 1), repeat=len(weights))])
    return np.einsum("ci,ij,cj->c", errors, moments, errors)


def test_choices_are_among_the_best_of_all_where_all_can_be_tried():
    ranks = []
    for seed in range(20):
        weights, moments = layer(seed, rows=1, columns=10)
        found = rounding_cost(weights, moments, round_up_or_down(weights, moments, around(weights), passes=20)).item()
        every = costs_of_all_choices(weights[0, 0], moments[0])
        assert found >= every.min() * (1 - 1e-9)
        ranks.append(np.mean(every < found * (1 - 1e-9)))
    # By chance a choice would stand in the middle; these stand in the best percent on average, and the nearest codes do not.
    assert np.mean(ranks) < 0.01
    nearest = [
        np.mean(costs_of_all_choices(w[0, 0], h[0]) < rounding_cost(w, h, np.rint(w)).item() * (1 - 1e-9))
        for w, h in (layer(s, rows=1, columns=10) for s in range(20))
    ]
    assert np.mean(nearest) > 0.05


@pytest.mark.parametrize("passes", [0, 1, 5])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), groups=st.integers(1, 3), columns=st.sampled_from([1, 3, 65, 130]))
def test_it_is_never_worse_than_the_nearest_codes_and_no_weight_moves_by_a_step(passes, seed, groups, columns):
    weights, moments = layer(seed, groups=groups, rows=3, columns=columns)
    moments = moments + 1e-6 * np.eye(columns) * np.trace(moments[0])
    scale = np.random.default_rng(seed).uniform(0.5, 2, (groups, 3, 1))
    ends = around(weights, scale)
    found = round_up_or_down(weights, moments, ends, passes=passes)
    assert ((found == ends[0]) | (found == ends[1])).all()
    nearest = rounding_cost(weights, moments, np.rint(weights / scale) * scale)
    assert (rounding_cost(weights, moments, found) <= nearest * (1 + 1e-9)).all()


def test_going_over_it_again_ends_where_no_single_weight_can_do_better():
    weights, moments = layer(3, rows=2, columns=30)
    codes = round_up_or_down(weights, moments, around(weights), passes=1000)
    best = rounding_cost(weights, moments, codes)
    for column in range(30):
        other = codes.copy()
        other[:, :, column] = np.floor(weights[:, :, column]) + np.ceil(weights[:, :, column]) - codes[:, :, column]
        assert (rounding_cost(weights, moments, other) >= best * (1 - 1e-12)).all()


def test_weights_that_lie_on_the_grid_stay_and_groups_do_not_see_one_another():
    weights, moments = layer(4, groups=2, rows=3, columns=20)
    weights[:, :, ::2] = np.rint(weights[:, :, ::2])
    codes = round_up_or_down(weights, moments, around(weights), passes=4)
    assert np.array_equal(codes[:, :, ::2], weights[:, :, ::2])
    alone = [round_up_or_down(weights[i : i + 1], moments[i : i + 1], around(weights[i : i + 1]), passes=4) for i in range(2)]
    assert np.array_equal(codes, np.concatenate(alone))


def test_inputs_that_are_independent_leave_nothing_to_make_up_for():
    weights, _ = layer(5)
    moments = np.diag(np.random.default_rng(5).uniform(0.1, 5, 40))[None]
    assert np.array_equal(round_up_or_down(weights, moments, around(weights), passes=3), np.rint(weights))


def test_uneven_steps_are_chosen_from_too():
    """In FP8 every weight goes to a value that ml_dtypes has, next to it, and the products come nearer than with the nearest values."""
    import ml_dtypes

    from quant.core.formats import FP8

    weights, moments = layer(6, rows=8)
    ends = FP8.around(weights)
    found = round_up_or_down(weights, moments, ends, passes=3)
    levels = np.sort(np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64))
    levels = levels[np.isfinite(levels)]
    place = np.searchsorted(levels, weights)
    assert ((found == levels[place]) | (found == levels[place - 1])).all()
    nearest = weights.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    assert (rounding_cost(weights, moments, found) < rounding_cost(weights, moments, nearest)).all()
