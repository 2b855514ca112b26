"""Quantizers, exactly as ONNX defines them, and with gradients.

Codes that only DequantizeLinear reads (behind operators that move values, if any) are carried as floats, which hold every code
exactly, so that gradients pass: rounding is passed straight through, what is clipped gets none. For x / s inside the range the
pair then has the gradient 1 with respect to x and round(x / s) - x / s with respect to s: that of learned step sizes.
Codes that anything else reads are integers, and no gradient passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from torch import fx

from quant.twin.operators import Call, Unsupported, operator
from quant.twin.operators.elementwise import EIGHT_BIT_FLOATS, TORCH_TYPES

_T = onnx.TensorProto
INTEGERS: dict[int, tuple[int, int]] = {
    _T.INT2: (-2, 1),
    _T.UINT2: (0, 3),
    _T.INT4: (-8, 7),
    _T.UINT4: (0, 15),
    _T.INT8: (-128, 127),
    _T.UINT8: (0, 255),
    _T.INT16: (-32768, 32767),
    _T.UINT16: (0, 65535),
}
"""Integer type of codes -> lowest and highest."""
_CARRIERS: dict[int, torch.dtype] = {_T.INT2: torch.int8, _T.UINT2: torch.uint8, _T.INT4: torch.int8, _T.UINT4: torch.uint8}
_WIDE: dict[int, torch.dtype] = {_T.INT16: torch.int16, _T.UINT16: torch.uint16}


class _Round(torch.autograd.Function):
    """To the nearest integer, ties to even; the gradient passes straight through."""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.round(x)

    @staticmethod
    def backward(_ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


class _RoundFloat(torch.autograd.Function):
    """To the nearest value of a float type, ties to even; the gradient passes straight through."""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(_ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


def round_through(x: torch.Tensor) -> torch.Tensor:
    """`x` rounded half to even, with the gradient of `x`.

    Example:
        >>> round_through(torch.tensor([0.5, 1.5, 2.5]))
        tensor([0., 2., 2.])
    """
    return _Round.apply(x) if x.requires_grad and torch.is_grad_enabled() else torch.round(x)  # type: ignore[no-untyped-call]


def spread(values: torch.Tensor, x: torch.Tensor, axis: int, block: int) -> torch.Tensor:
    """Scales or zero points of `x` in a shape that broadcasts with it: one for all, for each slice along `axis`, or for each block."""
    if values.dim() == 0 or (values.numel() == 1 and not block):
        return values.reshape(())
    if block:
        axis = axis % x.dim()
        return torch.narrow(torch.repeat_interleave(values, block, axis), axis, 0, x.shape[axis])
    shape = [1] * x.dim()
    shape[axis] = -1
    return values.reshape(shape)


def quantize(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, place: tuple[int, int], grid: tuple[int, int]) -> torch.Tensor:
    """Integer codes of `x`, as floats. `place` is (axis, block size or 0), `grid` the lowest and highest code."""
    steps = round_through(x / spread(scale, x, *place))
    if zero is not None:
        steps = steps + as_type(spread(zero, x, *place), steps.dtype)
    return torch.clamp(steps, grid[0], grid[1])


def quantize_float(x: torch.Tensor, scale: torch.Tensor, place: tuple[int, int], dtype: torch.dtype, largest: float) -> torch.Tensor:
    """Values of an 8-bit float type, as floats; saturating, NaN stays NaN."""
    scaled = torch.clamp(x / spread(scale, x, *place), -largest, largest)
    return _RoundFloat.apply(scaled, dtype) if scaled.requires_grad and torch.is_grad_enabled() else scaled.to(dtype).to(scaled.dtype)  # type: ignore[no-untyped-call]


def to_codes(steps: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Codes as integers."""
    return steps.to(dtype)


@operator("QuantizeLinear")
def _quantize_linear(call: Call) -> fx.Node:
    kind = _code_type(call)
    place = call.attribute("axis", 1), call.attribute("block_size", 0) or 0
    if call.attribute("precision", 0) not in {0, _T.FLOAT}:
        raise Unsupported("a division in another precision than float32")
    x, scale = call.tensor(0), call.tensor(1)
    integers = call.values.integer_readers(call.node.output[0])
    if kind in EIGHT_BIT_FLOATS:
        dtype, largest = EIGHT_BIT_FLOATS[kind]
        if not call.attribute("saturate", 1):
            raise Unsupported("8-bit floats that do not saturate")
        codes = call.emit(quantize_float, x, scale, place, dtype, largest)
        return call.emit(to_codes, codes, dtype) if integers else codes
    if kind not in INTEGERS:
        raise Unsupported(f"codes of type {_T.DataType.Name(kind)}")
    codes = call.emit(quantize, x, scale, call.tensor_or_none(2), place, INTEGERS[kind])
    if not integers:
        return codes
    return call.emit(to_codes, codes, _CARRIERS.get(kind) or _WIDE.get(kind) or TORCH_TYPES[kind])


def _code_type(call: Call) -> int:
    """Type of the codes: that of the zero point, or what the node says."""
    if call.has(2):
        kind = call.values.kind(call.node.input[2])
        if kind is None:
            raise Unsupported("a zero point of unknown type")
        return kind
    return call.attribute("output_dtype", 0) or _T.UINT8


def dequantize(codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, place: tuple[int, int], dtype: torch.dtype | None) -> torch.Tensor:
    """The values that codes stand for: (code - zero point) * scale, in the scale's type unless told."""
    wide = torch.float32 if scale.dtype in {torch.float16, torch.bfloat16} else scale.dtype
    values = as_type(codes, wide)
    if zero is not None:
        values = values - as_type(spread(zero, codes, *place), wide)
    return as_type(values * as_type(spread(scale, codes, *place), wide), dtype or scale.dtype)


def as_type(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` in a type; itself when it has it (an exported program would else hold the cast)."""
    return x if x.dtype == dtype else x.to(dtype)


@operator("DequantizeLinear")
def _dequantize_linear(call: Call) -> fx.Node:
    zero = call.values.constant(call.node.input[2]) if call.has(2) else None
    nothing = zero is not None and not np.any(zero.astype(np.float32))  # a zero point of 0 changes nothing
    place = call.attribute("axis", 1), call.attribute("block_size", 0) or 0
    dtype = TORCH_TYPES[call.attribute("output_dtype")] if call.attribute("output_dtype", 0) else None
    return call.emit(dequantize, call.tensor(0), call.tensor(1), None if nothing else call.tensor_or_none(2), place, dtype)


def quantize_dynamic(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`DynamicQuantizeLinear`: codes, scale and zero point from the extremes of `x`."""
    low, high = torch.clamp(x.min(), max=0), torch.clamp(x.max(), min=0)
    scale = (high - low) / 255
    zero = torch.clamp(torch.round(-low / torch.where(scale == 0, torch.ones_like(scale), scale)), 0, 255)
    codes = torch.clamp(torch.round(x / torch.where(scale == 0, torch.ones_like(scale), scale)) + zero, 0, 255)
    return codes.to(torch.uint8), scale, zero.to(torch.uint8)


@operator("DynamicQuantizeLinear")
def _dynamic_quantize(call: Call) -> tuple[fx.Node | None, ...]:
    return call.each(call.emit(quantize_dynamic, call.tensor()))


def linear_in_codes(
    product: str, x: list[torch.Tensor], w: list[torch.Tensor], y: list[torch.Tensor], bias: torch.Tensor | None, rest: tuple[Any, ...]
) -> torch.Tensor:
    """`QLinearMatMul`, `QLinearConv`: an exact sum in integers, scaled and rounded to the codes of the result."""
    from quant.twin.operators import products  # noqa: PLC0415 - products know nothing of quantizers

    if product == "QLinearMatMul":
        total = products.matmul_integer(x[0], w[0], x[2], w[2])
        scale = products.rows(x[1]) * w[1]
    else:
        total = products.convolution_integer(x[0], w[0], x[2], w[2], *rest)
        channels = [1, -1] + [1] * (total.dim() - 2)
        total = total if bias is None else total + bias.reshape(channels)
        scale = x[1] * (w[1].reshape(channels) if w[1].numel() > 1 else w[1])
    steps = torch.round(total.to(torch.float32) * (scale.to(torch.float32) / y[1].to(torch.float32))) + y[2].to(torch.float32)
    low, high = torch.iinfo(y[2].dtype).min, torch.iinfo(y[2].dtype).max
    return torch.clamp(steps, low, high).to(y[2].dtype)


@operator("QLinearMatMul", "QLinearConv")
def _linear_in_codes(call: Call) -> fx.Node:
    from quant.twin.operators import products  # noqa: PLC0415

    x, w, y = ([call.tensor(i + k) for k in range(n)] for i, n in ((0, 3), (3, 3), (6, 2)))
    rest: tuple[Any, ...] = ()
    if call.node.op_type == "QLinearConv":
        rest = (*products.geometry(call, products.window_rank(call, 3)), call.attribute("group", 1))
    return call.emit(linear_in_codes, call.node.op_type, x, w, [None, *y], call.tensor_or_none(8), rest)
