"""The reference arithmetic: properties, numbers by hand, and ONNX's own reference evaluator."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import helper

from quant.core.formats import GRIDS, INT8, UINT8, Params, slice_extremes

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from onnx.reference import ReferenceEvaluator

grids = pytest.mark.parametrize("grid", GRIDS.values(), ids=lambda g: g.name)
integers = pytest.mark.parametrize("grid", [g for g in GRIDS.values() if not g.has_nan], ids=lambda g: g.name)
normal = st.one_of(st.just(0.0), st.floats(2.0**-60, 2.0**60, width=32), st.floats(-(2.0**60), -(2.0**-60), width=32))
arrays = hnp.arrays(np.float32, st.integers(1, 50), elements=normal)
ends = st.tuples(normal, normal).map(sorted)
properties = settings(max_examples=60, deadline=None)


def onnx_codes(values, params, axis=None):
    kind = helper.np_dtype_to_tensor_dtype(params.zero_point.dtype)
    return _evaluate("QuantizeLinear", values, params, axis, taken=onnx.TensorProto.FLOAT, given_back=kind)


def onnx_values(codes, params, axis=None):
    kind = helper.np_dtype_to_tensor_dtype(params.zero_point.dtype)
    return _evaluate("DequantizeLinear", codes, params, axis, taken=kind, given_back=onnx.TensorProto.FLOAT)


def _evaluate(op, values, params, axis, *, taken, given_back):
    zero = helper.np_dtype_to_tensor_dtype(params.zero_point.dtype)
    shape = list(np.shape(params.scale))
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "s", "z"], ["y"], **({} if axis is None else {"axis": axis}))],
        "g",
        [
            helper.make_tensor_value_info("x", taken, list(values.shape)),
            helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("z", zero, shape),
        ],
        [helper.make_tensor_value_info("y", given_back, list(values.shape))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    return ReferenceEvaluator(model).run(None, {"x": values, "s": np.asarray(params.scale), "z": np.asarray(params.zero_point)})[0]


@grids
@properties
@given(values=arrays, ends=ends)
def test_codes_are_those_of_the_onnx_reference(grid, values, ends):
    params = grid.params(*ends)
    reach = params.scale * np.float32(2**20)  # the evaluator goes through int32, so what is further out is no code of its
    values = np.clip(values, -reach, reach)
    codes = grid.quantize(values, params)
    assert codes.dtype == grid.dtype
    np.testing.assert_array_equal(codes, onnx_codes(values, params))


@grids
@properties
@given(ends=ends)
def test_every_code_reads_back_as_the_onnx_reference_says(grid, ends):
    params = grid.params(*ends)
    codes = np.arange(grid.low, grid.high + 1).astype(grid.dtype)
    values = grid.dequantize(codes, params)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, onnx_values(codes, params))


@grids
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_slices_of_an_axis_are_those_of_the_onnx_reference(grid, axis):
    values = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32) * 3
    params = grid.params(*slice_extremes(values * np.float32(0.8), axis))
    assert params.scale.shape == params.zero_point.shape == (values.shape[axis],)
    codes = grid.quantize(values, params, axis)
    np.testing.assert_array_equal(codes, onnx_codes(values, params, axis))
    np.testing.assert_array_equal(grid.dequantize(codes, params, axis), onnx_values(codes, params, axis))


@pytest.mark.parametrize("zero", [0, 7, 128, 255])
def test_ties_round_to_even_and_codes_saturate_as_in_the_onnx_reference(zero):
    values = np.append(np.arange(-300, 300, dtype=np.float32) / 2, np.float32([np.inf, -np.inf, 3e38, -3e38]))
    params = Params(np.asarray(np.float32(1)), np.asarray(np.uint8(zero)))
    codes = UINT8.quantize(values, params)
    np.testing.assert_array_equal(codes[:-4], onnx_codes(values[:-4], params))
    by_hand = [min(max(int(np.floor(v) + (v % 1 == 0.5 and np.floor(v) % 2 == 1)) + zero, 0), 255) for v in values[:-4]]
    assert codes[:-4].tolist() == by_hand
    assert codes[-4:].tolist() == [255, 0, 255, 0]


@grids
@properties
@given(ends=ends)
def test_what_was_written_is_written_again_as_it_is(grid, ends):
    params = grid.params(*ends)
    codes = np.arange(grid.low, grid.high + 1).astype(grid.dtype)
    np.testing.assert_array_equal(grid.quantize(grid.dequantize(codes, params), params), codes)


@grids
@properties
@given(values=arrays, ends=ends)
def test_order_is_kept(grid, values, ends):
    codes = grid.quantize(np.sort(values), grid.params(*ends)).astype(np.int64)
    assert (np.diff(codes) >= 0).all()


@integers
@properties
@given(values=arrays)
def test_inside_the_range_the_error_is_at_most_half_a_step(grid, values):
    params = grid.params(values.min(), values.max())
    exact, scale = values.astype(np.float64), float(params.scale)
    back = grid.dequantize(grid.quantize(values, params), params).astype(np.float64)
    lowest, highest = grid.dequantize(np.array([grid.low, grid.high]).astype(grid.dtype), params).astype(np.float64)
    inside = (lowest <= exact) & (exact <= highest)
    # Division and product are rounded to float32, each by at most 2^-24 of at most 256 steps.
    assert (np.abs(back - exact)[inside] <= scale * (0.5 + 2 * 256 * 2.0**-24)).all()
    # The zero point is a whole step, so an end of the range can lie up to half a step outside.
    assert (np.abs(back - exact) <= scale * (1 + 2 * 256 * 2.0**-24)).all()


@grids
@properties
@given(ends=ends)
def test_zero_is_exact(grid, ends):
    params = grid.params(*ends)
    codes = grid.quantize(np.float32([0.0, -0.0]), params)
    assert codes.tolist() == [params.zero_point] * 2
    assert grid.dequantize(codes, params).tolist() == [0.0, 0.0]


@properties
@given(values=arrays)
def test_on_the_symmetric_grid_a_negated_value_has_the_negated_code(values):
    extent = float(np.abs(values).max())
    params = INT8.params(-extent, extent)
    np.testing.assert_array_equal(INT8.quantize(-values, params), -INT8.quantize(values, params))
    assert int(params.zero_point) == 0


@properties
@given(values=arrays)
def test_the_symmetric_scale_is_the_larger_side_over_127(values):
    params = INT8.params(values.min(), values.max())
    largest = float(np.abs(values).max())
    assert float(params.scale) == (np.float32(largest / 127) if largest else 1.0)
    assert params == INT8.params(-values.max(), -values.min()) or params.scale == INT8.params(-values.max(), -values.min()).scale


@grids
@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (-0.0, 0.0), (1e-45, 1e-45), (-1e-40, 1e-40), (0, 1.17e-38), (5, 5), (-3, -3), (0, 3.4e38), (-3e38, 3e38), (1e-30, 2e-30)],
)
def test_every_range_has_a_positive_finite_scale_and_a_zero_point_of_the_codes_type(grid, low, high):
    params = grid.params(low, high)
    assert params.scale.dtype == np.float32
    assert np.isfinite(params.scale)
    assert params.scale >= np.finfo(np.float32).tiny
    assert params.zero_point.dtype == grid.dtype
    back = grid.dequantize(grid.quantize(np.float32([low, high, 0]), params), params)
    assert np.isfinite(back).all()
    assert back[2] == 0


@grids
def test_a_slice_of_zeros_has_scale_one_beside_its_neighbours(grid):
    params = grid.params(np.array([-1.0, 0.0, 0.0]), np.array([1.0, 0.0, 2.55]))
    assert params.scale[1] == 1
    assert params.zero_point[1] == 0
    assert (params.scale[[0, 2]] < 1).all()


@grids
def test_infinities_saturate(grid):
    params = grid.params(-1.0, 1.0)
    assert grid.quantize(np.float32([np.inf, -np.inf]), params).tolist() == [grid.high, grid.low]


@integers
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_is_refused(grid, dtype):
    with pytest.raises(ValueError, match=r"^a NaN has no integer code$"):
        grid.quantize(np.array([1, np.nan], dtype), grid.params(-1, 1))


def test_half_precision_divides_in_float32():
    # 2^-25 is below the smallest float16; dividing in float16 would divide by zero.
    params = Params(np.asarray(np.float32(2.0**-25)), np.asarray(np.int8(0)))
    assert INT8.quantize(np.float16([2.0**-24, -(2.0**-24), 0]), params).tolist() == [2, -2, 0]


def test_float64_values_are_not_rounded_first():
    params = Params(np.asarray(np.float32(1)), np.asarray(np.int8(0)))
    nearly = 0.5 + 2.0**-40
    assert INT8.quantize(np.array([nearly, 0.5, 1.5 - 2.0**-40]), params).tolist() == [1, 0, 1]


def test_scales_and_zero_points_by_hand():
    params = UINT8.params(-1.0, 1.55)
    assert (float(params.scale), int(params.zero_point)) == (np.float32(0.01), 100)
    assert (UINT8.params(0.0, 2.55).zero_point, UINT8.params(-2.55, 0.0).zero_point) == (0, 255)
    assert float(UINT8.params(1.0, 2.55).scale) == np.float32(0.01)
    assert float(INT8.params(-1.0, 2.54).scale) == np.float32(0.02)
    assert (INT8.steps, UINT8.steps) == (254, 255)


def test_extremes_of_slices():
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axis, (low, high) in {0: ([0, 12], [11, 23]), 1: ([0, 4, 8], [15, 19, 23]), -1: ([0, 1, 2, 3], [20, 21, 22, 23])}.items():
        found = slice_extremes(values, axis)
        assert [part.tolist() for part in found] == [low, high]
    assert [part.shape for part in slice_extremes(values, None)] == [(), ()]
    assert [float(part) for part in slice_extremes(values, None)] == [0, 23]
