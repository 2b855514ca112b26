"""Operators that work on each element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import onnx
import torch
from torch import fx
from torch.nn import functional

from quant.twin.operators import Call, Unsupported, operator

_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseNot": torch.bitwise_not,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "HardSwish": functional.hardswish,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Mish": functional.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softplus": functional.softplus,
    "Softsign": functional.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}
_BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}
_VARIADIC: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {"Max": torch.maximum, "Min": torch.minimum, "Sum": torch.add}
TORCH_TYPES: dict[int, torch.dtype] = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.FLOAT16: torch.float16,
    onnx.TensorProto.BFLOAT16: torch.bfloat16,
    onnx.TensorProto.DOUBLE: torch.float64,
    onnx.TensorProto.INT8: torch.int8,
    onnx.TensorProto.INT16: torch.int16,
    onnx.TensorProto.INT32: torch.int32,
    onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.UINT8: torch.uint8,
    onnx.TensorProto.BOOL: torch.bool,
}
"""ONNX element type -> torch's, for those that torch computes with."""


@operator(*_UNARY)
def _unary(call: Call) -> fx.Node:
    return call.emit(_UNARY[call.node.op_type], call.tensor())


@operator(*_BINARY)
def _binary(call: Call) -> fx.Node:
    return call.emit(_BINARY[call.node.op_type], call.tensor(0), call.tensor(1))


@operator(*_VARIADIC)
def _variadic(call: Call) -> fx.Node:
    given = [call.tensor(i) for i in range(len(call.node.input))]
    return reduce(lambda a, b: call.emit(_VARIADIC[call.node.op_type], a, b), given[1:], call.emit(same, given[0]))


@operator("Mean")
def _mean(call: Call) -> fx.Node:
    given = [call.tensor(i) for i in range(len(call.node.input))]
    return call.emit(torch.div, reduce(lambda a, b: call.emit(torch.add, a, b), given), len(given))


def same(x: torch.Tensor) -> torch.Tensor:
    """The tensor itself."""
    return x


@operator("Identity", "Dropout")
def _identity(call: Call) -> fx.Node | tuple[fx.Node | None, ...]:
    if call.node.op_type == "Dropout":
        if call.has(2) and call.literal(2):
            raise Unsupported("dropout in training mode")
        if len(call.node.output) > 1:
            return call.emit(same, call.tensor()), call.emit(_all_kept, call.tensor())
    return call.emit(same, call.tensor())


def _all_kept(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x, dtype=torch.bool)


def divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`Div`: integers are cut towards 0."""
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@operator("Div")
def _div(call: Call) -> fx.Node:
    return call.emit(divide, call.tensor(0), call.tensor(1))


@operator("Mod")
def _mod(call: Call) -> fx.Node:
    return call.emit(torch.fmod if call.attribute("fmod", 0) else torch.remainder, call.tensor(0), call.tensor(1))


def power(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """`Pow`: the result has the type of the base."""
    if exponent.is_floating_point() and not base.is_floating_point():
        return torch.pow(base.to(torch.float64), exponent.to(torch.float64)).to(base.dtype)
    return torch.pow(base, exponent.to(base.dtype) if exponent.is_floating_point() else exponent).to(base.dtype)


@operator("Pow")
def _pow(call: Call) -> fx.Node:
    return call.emit(power, call.tensor(0), call.tensor(1))


@operator("Where")
def _where(call: Call) -> fx.Node:
    return call.emit(torch.where, call.tensor(0), call.tensor(1), call.tensor(2))


def clip(x: torch.Tensor, low: torch.Tensor | None, high: torch.Tensor | None) -> torch.Tensor:
    """`Clip`; the upper bound wins where the two cross."""
    if low is not None:
        x = torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def clamp(x: torch.Tensor, low: float | None, high: float | None) -> torch.Tensor:
    """`Clip` between constants, which every engine knows as one operation."""
    return torch.clamp(x, low, high)


@operator("Clip")
def _clip(call: Call) -> fx.Node:
    bounds = [call.values.constant(call.node.input[i]) if call.has(i) else None for i in (1, 2)]
    fixed = all(b is not None or not call.has(i) for i, b in enumerate(bounds, 1)) and any(b is not None for b in bounds)
    if fixed:
        low, high = (None if b is None else b.reshape(-1)[0].item() for b in bounds)
        if low is None or high is None or low <= high:
            return call.emit(clamp, call.tensor(), low, high)
    return call.emit(clip, call.tensor(), call.tensor_or_none(1), call.tensor_or_none(2))


def to_type(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`Cast`: floats are cut towards 0 when they become integers."""
    return x.to(dtype)


EIGHT_BIT_FLOATS: dict[int, tuple[torch.dtype, float]] = {
    onnx.TensorProto.FLOAT8E4M3FN: (torch.float8_e4m3fn, 448.0),
    onnx.TensorProto.FLOAT8E5M2: (torch.float8_e5m2, 57344.0),
}
"""ONNX element type -> torch's, and its largest finite value."""


def to_eight_bits(x: torch.Tensor, dtype: torch.dtype, largest: float) -> torch.Tensor:
    """`Cast` to an 8-bit float, saturating."""
    return torch.clamp(x.to(torch.float32), -largest, largest).to(dtype)


@operator("Cast")
def _cast(call: Call) -> fx.Node:
    to = call.attribute("to")
    if to in EIGHT_BIT_FLOATS and call.attribute("saturate", 1):
        return call.emit(to_eight_bits, call.tensor(), *EIGHT_BIT_FLOATS[to])
    if to not in TORCH_TYPES:
        raise Unsupported(f"a cast to {onnx.TensorProto.DataType.Name(to)}")
    return call.emit(to_type, call.tensor(), TORCH_TYPES[to])


def scaled_exponential(x: torch.Tensor, alpha: float, gamma: float) -> torch.Tensor:
    """`Selu`, and `Elu` with gamma 1."""
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(torch.clamp(x, max=0)))


def continuous_exponential(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """`Celu`."""
    return torch.clamp(x, min=0) + torch.clamp(alpha * torch.expm1(x / alpha), max=0)


def leaky(x: torch.Tensor, slope: float) -> torch.Tensor:
    """`LeakyRelu`."""
    return functional.leaky_relu(x, slope)


def hard_sigmoid(x: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
    """`HardSigmoid`."""
    return torch.clamp(alpha * x + beta, 0, 1)


def thresholded(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """`ThresholdedRelu`."""
    return torch.where(x > alpha, x, torch.zeros_like(x))


def shrink(x: torch.Tensor, bias: float, lambd: float) -> torch.Tensor:
    """`Shrink`."""
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))


def swish(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """`Swish`."""
    return x * torch.sigmoid(alpha * x)


_WITH_FACTORS: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[str, float], ...]]] = {
    "Celu": (continuous_exponential, (("alpha", 1.0),)),
    "HardSigmoid": (hard_sigmoid, (("alpha", 0.2), ("beta", 0.5))),
    "LeakyRelu": (leaky, (("alpha", 0.01),)),
    "Selu": (scaled_exponential, (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875))),
    "Shrink": (shrink, (("bias", 0.0), ("lambd", 0.5))),
    "Swish": (swish, (("alpha", 1.0),)),
    "ThresholdedRelu": (thresholded, (("alpha", 1.0),)),
}


@operator(*_WITH_FACTORS)
def _with_factors(call: Call) -> fx.Node:
    function, factors = _WITH_FACTORS[call.node.op_type]
    return call.emit(function, call.tensor(), *(call.attribute(name, default) for name, default in factors))


@operator("Elu")
def _elu(call: Call) -> fx.Node:
    return call.emit(scaled_exponential, call.tensor(), call.attribute("alpha", 1.0), 1.0)


@operator("PRelu")
def _prelu(call: Call) -> fx.Node:
    return call.emit(sloped, call.tensor(0), call.tensor(1))


def sloped(x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """`PRelu`."""
    return torch.where(x < 0, slope * x, x)


@operator("Gelu")
def _gelu(call: Call) -> fx.Node:
    return call.emit(gelu, call.tensor(), call.attribute("approximate", "none"))


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """`Gelu`."""
    return functional.gelu(x, approximate=approximate)


@operator("IsInf")
def _is_inf(call: Call) -> fx.Node:
    return call.emit(is_infinite, call.tensor(), call.attribute("detect_negative", 1), call.attribute("detect_positive", 1))


def is_infinite(x: torch.Tensor, negative: int, positive: int) -> torch.Tensor:
    """`IsInf`."""
    found = torch.zeros_like(x, dtype=torch.bool)
    found = found | (x == math.inf) if positive else found
    return found | (x == -math.inf) if negative else found


def softmax(x: torch.Tensor, axis: int, stash: torch.dtype | None = None) -> torch.Tensor:
    """`Softmax`."""
    return torch.softmax(x, axis) if stash is None else torch.softmax(x, axis, dtype=stash).to(x.dtype)


def log_softmax(x: torch.Tensor, axis: int) -> torch.Tensor:
    """`LogSoftmax`."""
    return torch.log_softmax(x, axis)


@operator("Softmax", "LogSoftmax")
def _softmax(call: Call) -> fx.Node:
    return call.emit(softmax if call.node.op_type == "Softmax" else log_softmax, call.tensor(), call.attribute("axis", -1))
