"""The quantizers of a graph: its QuantizeLinear and DequantizeLinear nodes, read as the engine reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt
import onnx_ir as ir

from quant.lint.values import MATRIX, integer, optional, shape_of

if TYPE_CHECKING:
    from quant.lint.facts import Facts

_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})  # the parser goes by the operator's name
_OUTPUT_DTYPE_SINCE = {True: 21, False: 23}


@dataclass(frozen=True, eq=False)
class Quantizer:
    """One QuantizeLinear or DequantizeLinear.

    Args:
        node: The node.
        quantizes: Whether it makes codes, rather than reads them.
        data: What it quantizes or dequantizes.
        scale: Its scale.
        zero: Its zero point, if one is given.
        scales: What the scale holds, if it is stored.
        zeros: What the zero point holds, if it is stored.
        codes: Type of the codes, as ONNX has it; None when it is not known.
        axis: The axis as written (1 when it is not).
        block: The `block_size` as written (0 when it is not).
        shape: Shape of `data`, as far as it is known.
        constant: Whether `data` does not depend on any input of the graph.
    """

    node: ir.Node
    quantizes: bool
    data: ir.Value
    scale: ir.Value
    zero: ir.Value | None
    scales: npt.NDArray[Any] | None
    zeros: npt.NDArray[Any] | None
    codes: ir.DataType | None
    axis: int
    block: int
    shape: tuple[int | None, ...] | None
    constant: bool

    @property
    def output(self) -> ir.Value:
        """What it makes."""
        return self.node.outputs[0]

    @property
    def granularity(self) -> Literal["tensor", "channel", "block"] | None:
        """What shares a scale; None when that cannot be told."""
        scale = shape_of(self.scale)
        if scale is None:
            return None
        if len(scale) >= MATRIX:
            return "block"
        return "tensor" if not scale or scale[0] == 1 else "channel"

    @property
    def positive_axis(self) -> int | None:
        """The axis counted from the front; None when the rank is unknown or the axis is outside."""
        if self.shape is None or not -len(self.shape) <= self.axis < len(self.shape):
            return None
        return self.axis % len(self.shape) if self.shape else None


def output_type(node: ir.Node, version: int) -> ir.DataType | None:
    """The type that a quantizer's `output_dtype` asks for, where its operator set has one."""
    since = _OUTPUT_DTYPE_SINCE[node.op_type == "QuantizeLinear"]
    asked = integer(node, "output_dtype", 0)
    return ir.DataType(asked) if asked and version >= since and asked in {int(d) for d in ir.DataType} else None


def code_type(node: ir.Node, types: dict[ir.Value, ir.DataType], version: int) -> ir.DataType | None:
    """Type of the codes of a quantizer: that of its zero point, what it asks for, or ONNX's default of UINT8."""
    zero = optional(node, 2)
    if node.op_type == "DequantizeLinear":
        return types.get(node.inputs[0]) if node.inputs[0] is not None else None
    if zero is not None:
        return types.get(zero)
    return output_type(node, version) or ir.DataType.UINT8


def is_quantizer(node: ir.Node) -> bool:
    """Whether a node is a QuantizeLinear or a DequantizeLinear with what it needs."""
    named = node.op_type in {"QuantizeLinear", "DequantizeLinear"} and node.domain in _DOMAINS
    return named and optional(node, 0) is not None and optional(node, 1) is not None and len(node.outputs) == 1


def find_quantizers(facts: Facts) -> dict[ir.Node, Quantizer]:
    """Every quantizer of the graph."""
    found = {}
    for node in facts.nodes:
        if not is_quantizer(node):
            continue
        data, scale = node.inputs[0], node.inputs[1]
        assert data is not None, "is_quantizer has looked"
        assert scale is not None, "is_quantizer has looked"
        zero = optional(node, 2)
        found[node] = Quantizer(
            node,
            node.op_type == "QuantizeLinear",
            data,
            scale,
            zero,
            facts.array(scale),
            facts.array(zero),
            code_type(node, facts.types, facts.opset),
            integer(node, "axis", 1),
            integer(node, "block_size", 0),
            facts.shape(data),
            data in facts.constants,
        )
    return found
