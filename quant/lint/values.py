"""What is known of one value of a graph: its shape, and what it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.errors import ModelError

_FLOAT_BYTES = 4
MATRIX = 2
"""Axes of a matrix."""


def optional(node: ir.Node, position: int) -> ir.Value | None:
    """The input at `position`, which may have been left out."""
    return node.inputs[position] if position < len(node.inputs) else None


def shape_of(value: ir.Value | None) -> tuple[int | None, ...] | None:
    """Shape of a value, None for a length that is not fixed; None when even the rank is unknown."""
    if value is None:
        return None
    shape = value.const_value.shape if value.const_value is not None else value.shape
    return None if shape is None else tuple(d if isinstance(d, int) and d >= 0 else None for d in shape)


def stored(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """What an initializer or a Constant node holds; None when the value is computed, or holds text."""
    tensor = None if value is None else value.const_value
    node = None if value is None else value.producer()
    if tensor is None and node is not None and node.op_type == "Constant" and len(node.attributes) == 1 and len(node.outputs) == 1:
        kept = next(iter(node.attributes.values()))
        if kept.is_ref() or kept.name == "sparse_value":
            return None
        tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    if tensor is None or tensor.dtype in {ir.DataType.STRING, ir.DataType.UNDEFINED}:
        return None
    try:
        return tensor.numpy()
    except (ValueError, TypeError) as error:
        raise ModelError(f"tensor {tensor.name!r} is damaged: {str(error).splitlines()[0]}", hint="export the model again") from error


def floats(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The values of any numeric array, as float64."""
    return array.astype(np.float32).astype(np.float64) if array.dtype.kind == "V" or array.dtype.itemsize < _FLOAT_BYTES else array.astype(np.float64)


def integer(node: ir.Node, name: str, default: int) -> int:
    """A whole number among a node's attributes; `default` where it is not written, or is something else."""
    found = node.attributes.get(name)
    return int(found.value) if found is not None and found.type == ir.AttributeType.INT and not found.is_ref() else default
