"""Channels last: where a tensor has been computed with its channels on the last axis, what follows element by element goes on there.

Convolutions here read and write channels last. Each result is turned back for those who want it as ONNX has it, and TVM drops what nobody
reads: so a chain of convolutions and what stands between them never turns anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

_ELEMENTWISE = frozenset(
    {"Relu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "LeakyRelu", "Elu", "Tanh", "Erf", "Gelu", "Softplus", "Exp", "Sqrt", "Abs", "Neg", "Identity"}
    | {"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Cast"}
)
_SPATIAL_FROM = 3


class ChannelsLast:
    """Which variables have a twin with channels last.

    Args:
        emit: Binds an expression to a variable.
    """

    def __init__(self, emit: Callable[[Any], Any]) -> None:
        self._emit = emit
        self._twins: dict[Any, Any] = {}

    def of(self, value: Any) -> Any:
        """`value` with its channels last."""
        if value not in self._twins:
            self._twins[value] = self._emit(relax.op.permute_dims(value, _to_last(_rank(value))))
        return self._twins[value]

    def first(self, value: Any) -> Any:
        """What was computed with channels last, as ONNX has it; its twin is remembered."""
        rank = _rank(value)
        found = self._emit(relax.op.permute_dims(value, [0, rank - 1, *range(1, rank - 1)]))
        self._twins[found] = value
        return found

    def elementwise(self, value: Any, compute: Callable[[Any], Any]) -> Any:
        """`compute` of one tensor, element by element."""
        return self.first(compute(self._twins[value])) if value in self._twins else compute(value)

    def convert(self, op: str, inputs: Sequence[Any], attrs: dict[str, Any], compute: Callable[[Sequence[Any]], Any]) -> Any:
        """The result of an ONNX operator with channels last, if it can be computed so and an input is there already; else None."""
        there = [value for value in inputs if isinstance(value, relax.Var) and value in self._twins]
        if not there:
            return None
        rank = _rank(there[0])
        if op == "GlobalAveragePool":
            return self.first(self._emit(relax.op.mean(self._twins[there[0]], axis=list(range(1, rank - 1)), keepdims=True)))
        if op not in _ELEMENTWISE and not (op == "Concat" and int(attrs["axis"]) in {1, 1 - rank}):
            return None
        given = [self._given(value, rank) for value in inputs]
        if any(b is None and a is not None for a, b in zip(inputs, given, strict=True)):
            return None
        if op == "Concat":
            return self.first(self._emit(relax.op.concat(given, axis=-1)))
        return self.first(compute(given))

    def _given(self, value: Any, rank: int) -> Any:
        """An operand with channels last; None when it cannot be had so."""
        if isinstance(value, GenericConst):
            array = value.value.numpy()
            if array.size == 1:
                return relax.const(array.reshape(()))
            wide = array.reshape((1,) * (rank - array.ndim) + array.shape)
            return relax.const(np.ascontiguousarray(wide.transpose(_to_last(rank))))
        if isinstance(value, relax.Var) and isinstance(value.ty, relax.TensorType) and value.ty.ndim == rank:
            return self.of(value)
        return None


def _to_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _rank(value: Any) -> int:
    return int(value.ty.ndim)
