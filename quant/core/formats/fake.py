"""Fake quantization in torch: what a format would make of values, with gradients that pass through the rounding.

Rounding has no slope of use, so its gradient is taken as 1 where a value lies inside the range of the codes and as 0 where it is
clipped (the clipped straight-through estimator). A scale that is to be learned gets the gradient of LSQ (Esser et al. 2020,
"Learned Step Size Quantization"): with u = x / s, d x' / d s is round(u) - u inside the range and the clipped code beyond it, times
1 / sqrt(n q), where n is the number of values that share the scale and q the highest code: without this factor, scales
would learn much faster than weights.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from quant.core.formats.grid import Grid


def fake_quantize(
    values: torch.Tensor, grid: Grid, scale: torch.Tensor, zero_point: torch.Tensor | None = None, *, axis: int | None = None, block_size: int = 0
) -> torch.Tensor:
    """`values` written in `grid` and read again: bit for bit what `grid.dequantize(grid.quantize(...))` gives for float32.

    Args:
        values: float32, any shape.
        grid: The grid.
        scale: float32, positive; `[]`, `[n]` along `axis`, or one for each block of `block_size` along it (see `Params`). It
            gets LSQ's gradient if it asks for one.
        zero_point: Codes as whole numbers in the shape of `scale`; 0 when not given.
        axis: The axis that scales lie along.
        block_size: Values to a block; 0 when there are none.
    """
    import torch  # noqa: PLC0415 - heavy

    zero = torch.zeros_like(scale) if zero_point is None else zero_point.to(scale.dtype)
    wide, zeros = (_spread_out(part, values.shape, axis, block_size) for part in (scale, zero))
    result: torch.Tensor = _functions()[0].apply(values, wide, zeros, (grid, values.numel() / scale.numel()))
    return result


def straight_through(values: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
    """`rounded`, with the gradient of `values`."""
    result: torch.Tensor = _functions()[1].apply(values, rounded)
    return result


def _spread_out(part: torch.Tensor, shape: torch.Size, axis: int | None, block_size: int) -> torch.Tensor:
    """`part` so that it broadcasts against a tensor of `shape`; gradients flow back into it summed."""
    if part.ndim == 0 or axis is None:
        return part
    if block_size:
        return part.repeat_interleave(block_size, dim=axis).narrow(axis, 0, shape[axis])
    return part.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])


@cache
def _functions() -> tuple[Any, Any]:
    """The autograd functions; made late, for torch is heavy."""
    import torch  # noqa: PLC0415 - heavy

    class FakeQuantize(torch.autograd.Function):
        """Quantize and dequantize."""

        @staticmethod
        def forward(ctx: Any, values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, how: tuple[Grid, float]) -> torch.Tensor:
            grid, sharing = how
            low, high = grid.low - zero, grid.high - zero
            steps = values / scale
            clipped = torch.minimum(torch.maximum(steps, low), high)
            rounded = grid.round_tensor(clipped)
            ctx.save_for_backward(steps, rounded, low, high)
            ctx.factor = (sharing * grid.high) ** -0.5
            ctx.scale_shape = scale.shape
            return rounded * scale

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
            steps, rounded, low, high = ctx.saved_tensors
            inside = (steps >= low) & (steps <= high)
            for_values = gradient * inside if ctx.needs_input_grad[0] else None
            for_scale = None
            if ctx.needs_input_grad[1]:
                slope = torch.where(inside, rounded - steps, rounded)
                for_scale = (gradient * slope).sum_to_size(ctx.scale_shape) * ctx.factor
            return for_values, for_scale, None, None

    class StraightThrough(torch.autograd.Function):
        """Give the second, differentiate as the first."""

        @staticmethod
        def forward(ctx: Any, values: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
            del ctx, values
            return rounded.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
            del ctx
            return gradient, None

    return FakeQuantize, StraightThrough
