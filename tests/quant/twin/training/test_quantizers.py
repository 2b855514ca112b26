"""Fake quantizers: ONNX's arithmetic going forth, LSQ's gradients going back, both held to float64 NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.core.formats import INT8, UINT8, Params
from quant.core.formats.narrowed import narrowed
from quant.twin.training.quantizers import FakeBias, FakeQuantizer

GRIDS = {"int8": INT8, "uint8": UINT8, "int3": narrowed(INT8, 3), "uint4": narrowed(UINT8, 4)}


def made(grid, scale, zero=0.0, *, axis=None, learn=True):
    scale = torch.tensor(scale)
    return FakeQuantizer(grid, scale, torch.full_like(scale, zero), axis=axis, learn=learn)


@settings(max_examples=30)
@given(
    grid=st.sampled_from(list(GRIDS)),
    values=st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=12),
    scale=st.floats(0.0625, 2, width=32),
)
def test_it_gives_what_the_codes_of_the_grid_stand_for(grid, values, scale):
    chosen = GRIDS[grid]
    zero = 0 if chosen.symmetric else 3
    x = np.array(values, np.float32)
    params = Params(np.asarray(np.float32(scale)), np.asarray(zero, chosen.dtype))
    expected = chosen.dequantize(chosen.quantize(x, params), params)
    np.testing.assert_array_equal(made(chosen, np.float32(scale), float(zero))(torch.from_numpy(x)).detach().numpy(), expected)


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("grid", GRIDS)
def test_gradients_are_those_of_lsq_in_the_logarithm_of_the_scale(grid, axis):
    """With u = x / s inside [low, high]: d y / d x = 1 and d y / d s = round(u) - u; outside 0 and the end. Times s, for log s, and 1 / sqrt(n high)."""
    chosen, random = GRIDS[grid], np.random.default_rng(1)
    zero = 0 if chosen.symmetric else 2
    scale = np.float32(0.37) if axis is None else np.float32([0.37, 0.11, 0.9])
    wide = scale if axis is None else scale[:, None]
    x = (random.normal(size=(3, 40)) * wide * chosen.high).astype(np.float32)
    weight = random.normal(size=x.shape)
    fake = made(chosen, scale, float(zero), axis=axis)
    values = torch.from_numpy(x).requires_grad_()
    (fake(values) * torch.from_numpy(weight)).sum().backward()

    u, s = x.astype(np.float64) / wide, np.asarray(wide, np.float64)
    low, high = chosen.low - zero, chosen.high - zero
    inside = (u >= low) & (u <= high)
    assert 0 < inside.sum() < inside.size
    np.testing.assert_allclose(values.grad.numpy(), np.where(inside, weight, 0), rtol=1e-6)
    slope = np.where(inside, np.rint(u) - u, np.clip(u, low, high)) * weight * s
    summed = slope.sum() if axis is None else slope.sum(axis=1)
    sharing = x.size / np.size(scale)
    np.testing.assert_allclose(fake.growth.grad.numpy(), summed / np.sqrt(sharing * chosen.high), rtol=1e-3, atol=1e-4)


def test_a_scale_grows_by_its_logarithm_and_stays_positive():
    fake = made(INT8, np.float32(0.25))
    with torch.no_grad():
        fake.growth.fill_(float(np.log(2)))
        assert fake.scale.item() == pytest.approx(0.5)
        fake.growth.fill_(-30.0)
        assert fake.scale.item() > 0


def test_a_scale_that_is_not_learned_wants_no_gradient():
    fake = made(INT8, np.float32(0.25), learn=False)
    fake(torch.ones(2, requires_grad=True)).sum().backward()
    assert fake.growth.grad is None


def test_a_bias_is_rounded_to_steps_of_both_scales_and_its_gradient_passes():
    weight, source = made(INT8, np.float32([0.5, 0.25]), axis=0), made(UINT8, np.float32(0.125), 7.0)
    bias = torch.tensor([1.0 / 3, -0.1], requires_grad=True)
    rounded = FakeBias(weight, source)(bias)
    assert rounded.tolist() == [round((1 / 3) / 0.0625) * 0.0625, round(-0.1 / 0.03125) * 0.03125]
    (rounded * torch.tensor([2.0, 3.0])).sum().backward()
    assert bias.grad.tolist() == [2, 3]
    assert weight.growth.grad is None
    assert not list(FakeBias(weight, source).parameters())
