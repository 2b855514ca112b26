"""The Relax graph that is being made: its variables, and which of them are codes or stand for some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, tirx
from tvm.ir import GenericConst

from quant.targets.relax.layout import ChannelsLast


class Fusion(IntEnum):
    """How a function may be fused with others, as TVM numbers it."""

    ELEMENT_BY_ELEMENT = 0
    WITH_WHAT_FOLLOWS = 4
    NOT_AT_ALL = 8


@dataclass(frozen=True)
class Codes:
    """A tensor that was dequantized, as it was before.

    Args:
        values: Its codes.
        scale: Its scale, one for all.
        zero: The code of 0.
    """

    values: Any
    scale: float
    zero: int


@dataclass(frozen=True)
class Weights:
    """A constant that was dequantized.

    Args:
        codes: Its codes.
        scale: Its scales.
        zero: The codes of 0.
        axis: The axis that scales lie along; None when there is one for all.
    """

    codes: npt.NDArray[Any]
    scale: npt.NDArray[np.float32]
    zero: npt.NDArray[Any]
    axis: int | None

    def floats(self) -> npt.NDArray[np.float32]:
        """What it stands for."""
        shape = [1] * self.codes.ndim
        if self.axis is not None:
            shape[self.axis] = -1
        return ((self.codes.astype(np.int32) - self.zero.astype(np.int32).reshape(shape)) * self.scale.reshape(shape)).astype(np.float32)


class Graph:
    """What converters of operators write into.

    Args:
        builder: TVM's builder of Relax functions.
    """

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self.last = ChannelsLast(self.emit)
        self.codes: dict[Any, Codes] = {}
        self.weights: dict[Any, Weights] = {}

    def emit(self, expression: Any) -> Any:
        """Bind a result to a variable, so that it is computed once whoever reads it."""
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self.emit(field) for field in expression.fields])
        if isinstance(expression, GenericConst | relax.Var | relax.ShapeExpr) or not isinstance(expression, relax.Expr):
            return expression
        expression = self._builder.normalize(expression)
        return self._builder.emit(expression) if isinstance(expression.ty, relax.TensorType) else expression

    def call(self, title: str, compute: Callable[..., Any], fusion: Fusion, *inputs: Any) -> Any:
        """The result of a tensor expression."""
        return self._builder.emit_te(compute, *inputs, primfunc_name_hint=title, primfunc_attrs={"op_pattern": int(fusion)})

    def kernel(self, title: str, compute: Callable[..., Any], left: Any, right: Any) -> Any:
        """The sums of a kernel: FP32, or INT32 where it multiplies codes."""
        return self.call(title, compute, Fusion.WITH_WHAT_FOLLOWS, left, right if isinstance(right, relax.Expr) else relax.const(right))

    def cast(self, value: Any, dtype: str, *, of: str | None = None) -> Any:
        """`value` in another type; of several, those of type `of`."""
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.cast(field, dtype, of=of) for field in value.fields])
        if of is not None and not (is_tensor(value) and dtype_of(value) == of):
            return value
        constant = array(value)
        return relax.const(constant.astype(dtype)) if constant is not None else self.emit(relax.op.astype(value, dtype))

    def plus(self, sums: Any, bias: Any, source: Any) -> Any:
        """What a layer gives: its sums and its bias (None: it has none), in the type of its source."""
        if bias is not None:
            sums = self.emit(relax.op.add(sums, self.cast(bias, "float32", of="float16")))
        return self.cast(sums, "float16") if dtype_of(source) == "float16" else sums

    def moved(self, value: Any, move: Callable[[Any], Any], move_array: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Any:
        """`value` transposed, or with an axis of length 1 more, and the codes that it came from along with it."""
        constant = array(value)
        if constant is not None:
            found = relax.const(np.ascontiguousarray(move_array(constant)))
            if (was := self.weights.get(value)) is not None:
                # Of two axes, that of the channels changes places with the other; a vector has one scale.
                self.weights[found] = Weights(np.ascontiguousarray(move_array(was.codes)), was.scale, was.zero, None if was.axis is None else 1 - was.axis)
            return found
        found = self.emit(move(value))
        if (codes := self.codes.get(value)) is not None:
            self.codes[found] = Codes(self.emit(move(codes.values)), codes.scale, codes.zero)
        return found

    def symmetric(self, value: Any, *, axis: int) -> Weights | None:
        """The codes of a constant, if they are symmetric INT8 with scales along `axis`."""
        found = self.weights.get(value)
        if found is None or found.codes.dtype != np.int8 or found.zero.any() or found.axis not in {None, axis}:
            return None
        return found

    def left(self, value: Any) -> Codes | None:
        """The codes of a tensor in UINT8, which kernels take on the left."""
        return self._in(self.codes.get(value), "uint8", 128)

    def right(self, value: Any) -> Codes | None:
        """The codes of a tensor in INT8, which kernels take on the right; a constant's as well, if it has one scale for all."""
        weights = self.weights.get(value)
        if weights is None or weights.axis is not None or weights.codes.dtype not in {np.dtype(np.int8), np.dtype(np.uint8)}:
            return self._in(self.codes.get(value), "int8", -128)
        return self._in(Codes(relax.const(weights.codes), float(weights.scale.item()), int(weights.zero.item())), "int8", -128)

    def _in(self, codes: Codes | None, dtype: str, by: int) -> Codes | None:
        """Codes of the other sign moved by 128: they stand for the same."""
        if codes is None or dtype_of(codes.values) == dtype:
            return codes

        def shift(values: Any) -> Any:
            return self.emit(relax.op.astype(self.emit(relax.op.add(self.emit(relax.op.astype(values, "int32")), relax.const(by, "int32"))), dtype))

        return Codes(self.last.elementwise(codes.values, shift), codes.scale, codes.zero + by)


def array(value: Any) -> npt.NDArray[Any] | None:
    """The values of a constant; None for what is computed, or not there."""
    return value.value.numpy() if isinstance(value, GenericConst) else None


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor, and not a shape or a number."""
    return isinstance(getattr(value, "ty", None), relax.TensorType)


def shape_of(value: Any) -> list[Any]:
    """Lengths along each axis: numbers, or symbols."""
    return [int(n.value) if isinstance(n, tirx.IntImm) else n for n in value.ty.shape.values]


def dtype_of(value: Any) -> str:
    """Type of the elements."""
    return str(value.ty.dtype)


def inputs_of(inputs: Sequence[Any], count: int) -> list[Any]:
    """The first `count` inputs of a node; None for those that are not there."""
    return [*inputs, *[None] * count][:count]
