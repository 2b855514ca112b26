"""Shape arithmetic on ints and lists of ints, so that a dynamic shape stays a shape."""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from typing import Any

import torch

from quant.twin.operators import Call

Number = Any
"""An int, or a list of ints; `torch.export` puts symbols in their place."""


def shape(x: torch.Tensor, start: int, end: int | None) -> Number:
    """`Shape`."""
    return list(x.shape)[start:end]


def size(x: torch.Tensor) -> Number:
    """`Size`."""
    return x.numel()


def pick(values: Number, index: Number) -> Number:
    """`Gather` along the only axis."""
    return [values[i] for i in index] if isinstance(index, list) else values[index]


def part(values: Number, start: Number, end: Number, step: Number) -> Number:
    """`Slice` of the only axis."""
    return values[slice(start, end, step)]


def join(parts: Number) -> Number:
    """`Concat`."""
    return [v for part in parts for v in part]


def listed(value: Number) -> Number:
    """`Unsqueeze` of a scalar, or a reshape to one axis."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def single(value: Number) -> Number:
    """`Squeeze` to a scalar."""
    return value[0] if isinstance(value, (list, tuple)) else value


def quotient(a: Number, b: Number) -> Number:
    """Division that cuts towards 0, as ONNX divides integers.

    Example:
        >>> quotient(-7, 2), quotient(7, 2)
        (-3, 3)
    """
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return a // b  # of lengths, which are not negative


def product(values: Number) -> Number:
    """The product of all."""
    out = 1
    for value in values:
        out = out * value
    return out


def choose(condition: Number, a: Number, b: Number) -> Number:
    """`Where`."""
    return a if condition else b


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Add": python.add,
    "Sub": python.sub,
    "Mul": python.mul,
    "Div": quotient,
    "Mod": python.mod,
    "Min": min,
    "Max": max,
    "Equal": python.eq,
    "Where": choose,
    "Neg": python.neg,
    "Abs": abs,
}


def elementwise(op_type: str, *operands: Number) -> Number:
    """An operator on ints, or on each place of lists; one operand may be an int, or a list of one."""
    length = max((len(o) for o in operands if isinstance(o, (list, tuple))), default=None)
    function = ELEMENTWISE[op_type]
    if length is None:
        return function(*operands)
    spread = [o if isinstance(o, (list, tuple)) else [o] for o in operands]
    return [function(*(o[i] if len(o) > 1 else o[0] for o in spread)) for i in range(length)]


def numeric(call: Call) -> Any:
    """What a node makes of numbers, as a node; None when it is no arithmetic of shapes."""
    op, values, names = call.node.op_type, call.values, [n for n in call.node.input if n]
    if op == "Shape":
        return call.emit(shape, call.tensor(), call.attribute("start", 0), call.attribute("end"))
    if op == "Size":
        return call.emit(size, call.tensor())
    if not any(values.is_number(n) for n in names) or not all(values.is_number(n) or _is_small_integer(call, n) for n in names):
        return None
    if op in ELEMENTWISE:
        return call.emit(elementwise, op, *(call.number(i) for i in range(len(names))))
    build = _MOVING.get(op)
    return None if build is None else build(call)


def _gather(call: Call) -> Any:
    return call.emit(pick, call.number(0), call.number(1))


def _slice(call: Call) -> Any:
    return call.emit(part, call.number(0), _one(call, 1), _one(call, 2), _one(call, 4) if call.has(4) else 1)


def _one(call: Call, position: int) -> Any:
    value = call.number(position)
    return value[0] if isinstance(value, list) else call.emit(single, value)


def _concat(call: Call) -> Any:
    return call.emit(join, [call.number(i) for i in range(len(call.node.input))])


def _unsqueeze(call: Call) -> Any:
    return call.emit(listed, call.number(0))


def _squeeze(call: Call) -> Any:
    return call.emit(single, call.number(0))


def _reshape(call: Call) -> Any:
    if call.values.constant(call.node.input[1]) is None or len(call.literal(1)) > 1:
        return None
    return call.emit(listed if call.literal(1) else single, call.number(0))


def _identity(call: Call) -> Any:
    return call.emit(same, call.number(0))


def _cast(call: Call) -> Any:
    return call.emit(same, call.number(0)) if call.attribute("to") in _INTEGERS else None


def _reduce_prod(call: Call) -> Any:
    if call.has(1):
        return None
    return call.emit(listed if call.attribute("keepdims", 1) else same, call.emit(product, call.number(0)))


_INTEGERS = frozenset({6, 7})
"""INT32 and INT64 in ONNX."""
_MOVING: dict[str, Callable[[Call], Any]] = {
    "Cast": _cast,
    "Concat": _concat,
    "Gather": _gather,
    "Identity": _identity,
    "ReduceProd": _reduce_prod,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}


def same(value: Number) -> Number:
    """The value itself."""
    return value


def _is_small_integer(call: Call, name: str) -> bool:
    array = call.values.constant(name)
    return array is not None and array.dtype.kind in "ib" and array.ndim <= 1 and array.size <= _LARGEST


_LARGEST = 64
"""Longest constant that takes part in arithmetic of shapes; longer ones are data."""
