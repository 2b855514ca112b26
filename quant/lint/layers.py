"""The weighted operations of a graph, whatever their type, with what each operand comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from quant.graph.model import attribute
from quant.lint.quantizers import Quantizer
from quant.lint.values import MATRIX, integer, optional

if TYPE_CHECKING:
    from quant.lint.facts import Facts

LAYER_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
MOVING = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that a dequantizer may stand behind and still belong to the layer: they move values, or change their float type."""


@dataclass(frozen=True, eq=False)
class Operand:
    """One of the two factors of a layer.

    Args:
        value: The layer's input.
        dequantizer: The DequantizeLinear that it comes from; None when it is a float.
        between: The nodes between that and the layer, nearest to the layer first.
        constant: Whether it does not depend on any input of the graph.
    """

    value: ir.Value
    dequantizer: Quantizer | None
    between: tuple[ir.Node, ...]
    constant: bool

    @property
    def codes(self) -> ir.DataType | None:
        """Type of the codes; None for a float."""
        return None if self.dequantizer is None else self.dequantizer.codes

    def axis_at_layer(self) -> int | None:
        """Where the dequantizer's axis lies in the layer's input; None when it cannot be followed."""
        axis = None if self.dequantizer is None else self.dequantizer.positive_axis
        for node in reversed(self.between):
            if axis is None or node.op_type not in {"Cast", "Identity", "Transpose"}:
                return None
            if node.op_type == "Transpose":
                rank = len(self.dequantizer.shape or ()) if self.dequantizer else 0
                order = [int(i) for i in attribute(node, "perm", tuple(reversed(range(rank))))]
                axis = order.index(axis) if axis in order else None
        return axis


@dataclass(frozen=True, eq=False)
class Layer:
    """One Conv, ConvTranspose, Gemm or MatMul.

    Args:
        node: The node.
        left: Its first operand.
        right: Its second operand: the kernel of a convolution.
        shapes: Shapes of the two, as far as they are known.
    """

    node: ir.Node
    left: Operand
    right: Operand
    shapes: tuple[tuple[int | None, ...] | None, tuple[int | None, ...] | None]

    @property
    def convolves(self) -> bool:
        """Whether it is a convolution."""
        return self.node.op_type in {"Conv", "ConvTranspose"}

    @property
    def weight(self) -> Operand | None:
        """The operand that is constant, if exactly one is."""
        if self.left.constant == self.right.constant:
            return None
        return self.right if self.right.constant else self.left

    @property
    def quantized(self) -> bool:
        """Whether both operands are codes."""
        return self.left.dequantizer is not None and self.right.dequantizer is not None

    def channel_axis(self) -> int | None:
        """Axis of the right operand that output channels lie along."""
        match self.node.op_type:
            case "Conv":
                return 0
            case "ConvTranspose":
                return 1
            case "Gemm":
                return 0 if integer(self.node, "transB", 0) else 1
        shape = self.shapes[1]
        return None if shape is None or len(shape) < MATRIX else len(shape) - 1


def find_layers(facts: Facts) -> tuple[Layer, ...]:
    """Every layer of the graph and of the graphs nested in it."""
    found = []
    for node in facts.standard(*LAYER_OPS):
        first, second = optional(node, 0), optional(node, 1)
        if first is not None and second is not None:
            found.append(Layer(node, operand(facts, first), operand(facts, second), (facts.shape(first), facts.shape(second))))
    return tuple(found)


def operand(facts: Facts, value: ir.Value) -> Operand:
    """Follow `value` up to the DequantizeLinear that it comes from, through what only moves values."""
    between: list[ir.Node] = []
    at: ir.Value | None = value
    while at is not None:
        dequantizer = facts.dequantizer(at)
        if dequantizer is not None:
            return Operand(value, dequantizer, tuple(between), value in facts.constants)
        node = at.producer()
        if node is None or node.op_type not in MOVING or not node.inputs:
            break
        between.append(node)
        at = node.inputs[0]
    return Operand(value, None, (), value in facts.constants)
