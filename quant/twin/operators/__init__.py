"""ONNX operators as torch functions: what the twin itself brings, besides what it takes from `onnx2fx`.

An operator is a function of a `Call` that adds nodes to the twin's graph and gives those that make its outputs. Everything
that is known when the graph is built (attributes, constant shapes, axes) is decided there; what is left for the run are
plain functions of tensors, of ints and of lists of ints.

Shapes never become tensors where that can be helped: a *number* is an integer value of at most one axis that is held as an
int or a list of ints, so that `torch.export` can follow a dynamic shape through `Shape`, `Gather`, `Concat` and `Reshape`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import fx

Operator = Callable[["Call"], "fx.Node | tuple[fx.Node | None, ...]"]

OPERATORS: dict[str, Operator] = {}
"""ONNX operator type -> what builds it."""


def operator(*op_types: str) -> Callable[[Operator], Operator]:
    """Register a function as the builder of `op_types`."""

    def register(build: Operator) -> Operator:
        for op_type in op_types:
            assert op_type not in OPERATORS, f"{op_type} is built twice"
            OPERATORS[op_type] = build
        return build

    return register


def load() -> dict[str, Operator]:
    """All operators of this package."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return OPERATORS


class Unsupported(Exception):  # noqa: N818 - not an error of the program: the converter tells it with the node's name
    """A form of an operator that the twin does not compute."""


class Values(Protocol):
    """What a `Call` asks the graph that is being built."""

    @property
    def opset_version(self) -> int:
        """The opset of the graph."""
        ...

    def tensor(self, name: str) -> fx.Node:
        """The node that makes a value, as a tensor."""
        ...

    def number(self, name: str) -> Any:
        """A value as an int or list of ints: as a literal when it is constant, else as a node."""
        ...

    def is_number(self, name: str) -> bool:
        """Whether a value is held as a number."""
        ...

    def constant(self, name: str) -> npt.NDArray[Any] | None:
        """The array that a value always is, or None."""
        ...

    def kind(self, name: str) -> int | None:
        """ONNX element type of a value, where it is known."""
        ...

    def rank(self, name: str) -> int | None:
        """Number of axes of a value, where it is known."""
        ...

    def emit(self, function: Callable[..., Any], *arguments: Any) -> fx.Node:
        """Add a call to the graph."""
        ...

    def otherwise(self, node: onnx.NodeProto) -> fx.Node | tuple[fx.Node | None, ...]:
        """Build a node as the converter behind the twin does."""
        ...

    def integer_readers(self, name: str) -> bool:
        """Whether anything but a DequantizeLinear, directly or behind operators that only move values, reads a value."""
        ...


class Call:
    """One ONNX node that is being built.

    Args:
        values: The graph so far.
        node: The node.
    """

    def __init__(self, values: Values, node: onnx.NodeProto) -> None:
        self.values = values
        self.node = node
        self.opset = values.opset_version
        self._attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}

    def has(self, position: int) -> bool:
        """Whether an input is given."""
        return len(self.node.input) > position and bool(self.node.input[position])

    def tensor(self, position: int = 0) -> fx.Node:
        """An input as a tensor."""
        return self.values.tensor(self.node.input[position])

    def tensor_or_none(self, position: int) -> fx.Node | None:
        """An optional input as a tensor."""
        return self.tensor(position) if self.has(position) else None

    def tensors(self) -> list[fx.Node | None]:
        """All inputs as tensors; None for one that is left out."""
        return [self.tensor_or_none(i) for i in range(len(self.node.input))]

    def number(self, position: int) -> Any:
        """An input as an int or list of ints, or None when it is left out."""
        return self.values.number(self.node.input[position]) if self.has(position) else None

    def literal(self, position: int) -> Any:
        """A constant input as a Python value, or None when it is left out.

        Raises:
            Unsupported: It is computed.
        """
        if not self.has(position):
            return None
        array = self.values.constant(self.node.input[position])
        if array is None:
            raise Unsupported(f"input {position} ({self.node.input[position]!r}) is computed, and must be constant")
        return array.tolist()

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value."""
        found = self._attributes.get(name, default)
        if isinstance(found, bytes):
            return found.decode("utf-8")
        return found if not isinstance(found, Sequence) or isinstance(found, str) else list(found)

    def emit(self, function: Callable[..., Any], *arguments: Any) -> fx.Node:
        """Add a call of `function` to the graph."""
        return self.values.emit(function, *arguments)

    def otherwise(self) -> fx.Node | tuple[fx.Node | None, ...]:
        """Leave this form of the operator to the converter behind the twin."""
        return self.values.otherwise(self.node)

    def each(self, result: fx.Node) -> tuple[fx.Node | None, ...]:
        """The outputs of a call that gives a tuple; None for those that the ONNX node leaves out."""
        return tuple(self.emit(item, result, i) if name else None for i, name in enumerate(self.node.output))


def item(values: Sequence[Any], index: int) -> Any:
    """One of several outputs."""
    return values[index]


def from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor of its own memory; float types that NumPy lacks keep their bits, 4-bit integers are widened to 8 bits.

    Raises:
        Unsupported: torch has no such type.

    Example:
        >>> from_numpy(np.array([1, 2], np.int32))
        tensor([1, 2], dtype=torch.int32)
    """
    narrow = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
    narrow |= {"float8_e4m3fnuz": torch.float8_e4m3fnuz, "float8_e5m2fnuz": torch.float8_e5m2fnuz}
    name = array.dtype.name
    if name in narrow:
        bits = np.ascontiguousarray(array).view(np.uint16 if name == "bfloat16" else np.uint8).reshape(array.shape)
        return torch.from_numpy(bits.copy()).view(narrow[name])
    if name in {"int4", "int2"}:
        return torch.from_numpy(array.astype(np.int8))
    if name in {"uint4", "uint2"}:
        return torch.from_numpy(array.astype(np.uint8))
    try:
        return torch.from_numpy(np.array(array, order="C"))
    except TypeError as error:
        raise Unsupported(f"values of type {name}") from error
