"""Shapes for engines that are built ahead of time: what the data have, counted by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from quant.core.signature import Signature, TensorSpec
from quant.data.samples import Sample
from quant.engine.shapes import input_shapes
from quant.stages.running import Feeding

OUTPUTS = (TensorSpec("y", "float32", ("N", 2)),)


@dataclass
class Sequences:
    """One feed `x` of each length."""

    lengths: tuple[int, ...]

    def __iter__(self):
        return (Sample(i, ({"x": np.zeros((n, 3), np.float32)},)) for i, n in enumerate(self.lengths))


def feeding(*inputs, **options):
    return Feeding(Signature(tuple(TensorSpec(name, "float32", shape) for name, shape in inputs), OUTPUTS), **{"batch_size": 16, **options})


def test_lengths_are_the_least_the_median_and_the_largest_of_all_roles():
    found = input_shapes([Sequences((7, 5)), Sequences((9, 30, 6))], feeding(("x", ("N", "L", 3))), usual_batch=2)
    assert found == {"x": ((1, 5, 3), (2, 7, 3), (16, 30, 3))}


def test_a_batch_axis_stands_where_the_recipe_says():
    found = input_shapes([Sequences((7, 5))], feeding(("x", ("L", "N", 3)), batch_axes={"x": 1}), usual_batch=1)
    assert found == {"x": ((5, 1, 3), (7, 1, 3), (7, 16, 3))}


def test_an_input_without_a_batch_axis_keeps_its_rank():
    assert input_shapes([Sequences((7,))], feeding(("x", ("L", 3)), batch_axes={"x": None}), usual_batch=1) == {"x": ((7, 3), (7, 3), (7, 3))}


def test_inputs_of_fixed_shape_are_left_out():
    assert input_shapes([], feeding(("x", (1, 5, 3))), usual_batch=1) == {}


def test_samples_are_not_made_where_only_the_batch_is_free():
    class Never:
        def __iter__(self):
            pytest.fail("a sample was made")

    assert input_shapes([Never()], feeding(("x", ("N", 5, 3))), usual_batch=1) == {"x": ((1, 5, 3), (1, 5, 3), (16, 5, 3))}


def test_a_usual_batch_is_no_larger_than_the_largest():
    assert input_shapes([], feeding(("x", ("N", 3)), batch_size=4), usual_batch=32)["x"].usual == (4, 3)


def test_a_fixed_batch_stays_fixed():
    assert input_shapes([Sequences((7, 5))], feeding(("x", (8, "L", 3))), usual_batch=1) == {"x": ((8, 5, 3), (8, 7, 3), (8, 7, 3))}


def test_a_state_is_one_sequence_wide():
    found = input_shapes([Sequences((7, 5))], feeding(("x", ("N", "L", 3)), ("h", ("N", 64)), state={"h": "y"}), usual_batch=1)
    assert found["h"] == ((1, 64), (1, 64), (1, 64))
