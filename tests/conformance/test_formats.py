"""What every number format owes; run over the formats there are."""

import warnings

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from quant.core.formats import FORMATS, GRIDS, Params, fake_quantize, pack, quantizer_attributes, slice_extremes, unpack

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from onnx.reference import ReferenceEvaluator

formats = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda f: f.name)
grids = pytest.mark.parametrize("grid", GRIDS.values(), ids=lambda g: g.name)


def codes_of(form):
    """Every code of a format; of those too many to go through, a sample with all exponents."""
    bits = form.encoding.bits
    if bits == 4:
        return np.arange(form.low, form.high + 1).astype(form.dtype)
    kind = {8: np.uint8, 16: np.uint16, 32: np.uint32}[bits]
    every = np.arange(2 ** min(bits, 16), dtype=np.uint32)
    return (every if bits < 32 else (every << np.uint32(16)) + every % 9).astype(kind).view(form.dtype)


def finite_of(form):
    """All finite values that codes stand for, ascending, float64."""
    with np.errstate(invalid="ignore"):
        values = np.unique(codes_of(form).astype(np.float64))
    return values[np.isfinite(values)]


def values_of(form):
    """Finite values of all sizes: what codes stand for, what lies between them, and what lies next to that, out to far beyond the last."""
    exact = finite_of(form)
    middle = ((exact[:-1] + exact[1:]) / 2).astype(np.float32)
    beyond = np.float32([1.0001, 1.5, 2, 3, 1000]) * np.float32(min(exact[-1], 3e34))
    found = np.concatenate([exact.astype(np.float32), middle, beyond, -beyond])
    return np.concatenate([found, np.nextafter(found, np.float32(np.inf)), np.nextafter(found, np.float32(-np.inf))])


def bits_of(codes):
    return np.asarray(codes).astype(np.int8) if codes.dtype.itemsize == 1 and codes.dtype.name in {"int4", "uint4"} else codes.view(f"u{codes.dtype.itemsize}")


def onnx_says(form, values, params=None, axis=None, block_size=0):
    """ONNX's reference: QuantizeLinear with a zero point of the format's type, or Cast."""
    kind = form.encoding.data_type
    if form.name not in GRIDS:
        nodes, given = [helper.make_node("Cast", ["x"], ["y"], to=kind)], {}
    else:
        params = params or Params(np.ones((), np.float32), np.zeros((), form.dtype))
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], **quantizer_attributes(axis, block_size))]
        given = {"s": np.asarray(params.scale), "z": np.asarray(params.zero_point)}
    return _run(nodes, {"x": values} | given, kind)


def onnx_reads(codes, params, axis=None, block_size=0):
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], **quantizer_attributes(axis, block_size))
    return _run([node], {"x": codes, "s": np.asarray(params.scale), "z": np.asarray(params.zero_point)}, onnx.TensorProto.FLOAT)


def _run(nodes, given, kind):
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)) for n, a in given.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", kind, list(given["x"].shape))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    return ReferenceEvaluator(model).run(None, given)[0]


@formats
def test_on_codes_ties_neighbours_and_beyond_the_end_the_codes_are_onnx_own(form):
    values = values_of(form)
    if form.name not in GRIDS or form.has_nan:
        values = np.append(values, np.float32([np.nan, np.inf, -np.inf, 1e-45, -1e-45, -0.0]))
    values = np.clip(values, -(2.0**20), 2.0**20) if form.name in GRIDS and not form.has_nan else values  # the evaluator goes through int32
    with np.errstate(all="ignore"):
        expected = onnx_says(form, values)
    found = form.encode(values)
    assert found.dtype == form.dtype
    where_nan = np.isnan(values)
    np.testing.assert_array_equal(bits_of(found)[~where_nan], bits_of(expected)[~where_nan])
    assert np.isnan(found[where_nan].astype(np.float32)).all()


@formats
def test_every_code_stands_for_a_value_that_is_written_as_that_code(form):
    codes = codes_of(form)
    values = form.decode(codes)
    known = ~np.isnan(values)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(bits_of(form.encode(values[known])), bits_of(codes[known]))
    assert set(values[known][np.isfinite(values[known])].tolist()) == set(finite_of(form).tolist())


@formats
def test_values_of_double_precision_are_rounded_once(form):
    exact = finite_of(form)
    if form.encoding.bits == 32:
        exact = exact[np.abs(exact) > 1e-37]
    middle = (exact[:-1] + exact[1:]) / 2
    for values, expected in ((np.nextafter(middle, np.inf), exact[1:]), (np.nextafter(middle, -np.inf), exact[:-1])):
        if form.encoding.bits < 32:
            np.testing.assert_array_equal(form.encode(values).astype(np.float64), expected)


@formats
def test_torch_makes_the_same_of_every_value_bit_for_bit_and_differentiates_where_nothing_is_clipped(form):
    import torch

    values = values_of(form)
    if form.name not in GRIDS or form.has_nan:
        values = np.append(values, np.float32([np.inf, -np.inf, 1e-45, -0.0]))
    given = torch.tensor(values, requires_grad=True)
    found = form.fake(given)
    with np.errstate(over="ignore"):
        expected = form.decode(form.encode(values))
    np.testing.assert_array_equal(found.detach().numpy() + 0.0, expected + 0.0)  # integers have no negative zero
    (gradient,) = torch.autograd.grad(found.sum(), given)
    inside = (values >= form.low) & (values <= form.high) if form.name in GRIDS else np.ones(values.shape, bool)
    np.testing.assert_array_equal(gradient.numpy(), inside.astype(np.float32))


@formats
@pytest.mark.parametrize("count", [0, 1, 2, 5, 16])
def test_packed_bytes_are_those_of_an_onnx_tensor_and_read_back(form, count):
    codes = np.resize(codes_of(form)[::3], count).reshape(1, count)
    data = pack(codes)
    assert data.tobytes() == numpy_helper.from_array(codes).raw_data
    back = unpack(data, form.dtype, codes.shape)
    assert back.dtype == form.dtype
    assert back.shape == codes.shape
    np.testing.assert_array_equal(bits_of(back), bits_of(codes))


@formats
def test_bytes_of_another_number_are_refused(form):
    bits = form.encoding.bits
    with pytest.raises(ValueError, match=f"^6 values of {bits} bits take {6 * bits // 8} bytes, not 2$"):
        unpack(np.zeros(2, np.uint8), form.dtype, (2, 3))


@formats
def test_its_onnx_type_and_operator_set_are_those_of_the_standard(form):
    assert form.encoding.data_type == helper.np_dtype_to_tensor_dtype(form.dtype)
    operator, constraint = ("DequantizeLinear", 0) if form.name in GRIDS else ("Cast", 1)
    word = f"tensor({onnx.TensorProto.DataType.Name(form.encoding.data_type).lower()})"
    schemas = {v: onnx.defs.get_schema(operator, v) for v in range(10 if form.name in GRIDS else 6, onnx.defs.onnx_opset_version() + 1)}
    able = [v for v, s in schemas.items() if word in s.type_constraints[constraint].allowed_type_strs and (operator == "Cast" or "axis" in s.attributes)]
    assert form.encoding.opset == min(able)
    blocked = [v for v in able if "block_size" in schemas[v].attributes]
    assert form.name not in GRIDS or form.encoding.least_opset(block_size=32) == min(blocked)


@grids
@pytest.mark.parametrize(("shape", "axis", "block_size"), [((6, 8), 0, 2), ((6, 8), 1, 4), ((2, 6, 4), -2, 3), ((8,), 0, 4), ((4, 4), 1, 4)])
def test_blocks_are_those_of_the_onnx_reference(grid, shape, axis, block_size):
    values = np.random.default_rng(0).standard_t(4, shape).astype(np.float32)
    params = grid.params(*(0.7 * end for end in slice_extremes(values, axis, block_size)))
    codes = grid.quantize(values, params, axis, block_size=block_size)
    assert params.scale.shape == tuple(n // block_size if i == axis % len(shape) else n for i, n in enumerate(shape))
    np.testing.assert_array_equal(bits_of(codes), bits_of(onnx_says(grid, values, params, axis, block_size)))
    read = grid.dequantize(codes, params, axis, block_size=block_size)
    np.testing.assert_array_equal(read, onnx_reads(codes, params, axis, block_size))


@grids
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), axis=st.sampled_from([None, 0, 1, -1]), block_size=st.sampled_from([0, 2, 3]), power=st.integers(-20, 20))
def test_torch_gives_what_numpy_gives_with_any_scales(grid, seed, axis, block_size, power):
    import torch

    r = np.random.default_rng(seed)
    block_size = block_size if axis is not None else 0
    values = (r.standard_t(3, (3, 5)) * 2.0**power).astype(np.float32)
    params = grid.params(*(r.uniform(0.3, 1.2) * end for end in slice_extremes(values, axis, block_size)))
    expected = grid.dequantize(grid.quantize(values, params, axis, block_size=block_size), params, axis, block_size=block_size)
    zero = torch.tensor(np.asarray(params.zero_point).astype(np.float32))
    found = fake_quantize(torch.tensor(values), grid, torch.tensor(params.scale), zero, axis=axis, block_size=block_size)
    np.testing.assert_array_equal(found.numpy() + 0.0, expected + 0.0)


@grids
def test_a_learned_scale_gets_the_gradient_of_lsq(grid):
    import torch

    high = float(grid.high)
    steps = np.float64([[0.3, 2.0, 1.4, high + 9], [0.6, high * 2, -0.2 if grid.low < 0 else 0.2, 1.0]])
    scale = torch.tensor([0.5, 0.25], requires_grad=True)
    values = torch.tensor((steps * [[0.5], [0.25]]).astype(np.float32))
    weights = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    (fake_quantize(values, grid, scale, axis=0) * weights).sum().backward()
    rounded = np.array([[min(float(grid.decode(grid.encode(np.float32([u])))[0]), high) for u in row] for row in steps])
    slope = np.where(np.abs(steps) <= high, rounded - steps, rounded)
    np.testing.assert_allclose(scale.grad.numpy(), (slope * weights.numpy()).sum(axis=1) / np.sqrt(4 * high), rtol=2e-5)
