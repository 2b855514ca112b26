"""The layers of a graph: its weighted operations, its products of two activations, and the tables that it looks rows up in."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from quant.core.registry import did_you_mean
from quant.errors import ModelError, PlanError
from quant.graph.model import all_graphs, attribute, constant, read_model

LAYER_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that multiply."""
TABLE_OP = "Gather"
"""The operator that looks rows up in a table (an embedding)."""
FLOAT32 = ir.DataType.FLOAT
_OPERANDS = 2
_NESTED = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})
_MATRIX = 2


@dataclass(frozen=True)
class Layer:
    """One layer of the graph.

    Args:
        name: Name of its node, as in the user's file.
        op: ONNX operator type.
        node: The node.
        weight: Position of the weight among the node's inputs; None for a product of two activations.
        channel_axis: Axis of the weight that its output channels lie along; None when they lie along no single axis.
        activations: Positions of the inputs that are computed.
    """

    name: str
    op: str
    node: ir.Node
    weight: int | None
    channel_axis: int | None
    activations: tuple[int, ...]

    @property
    def weight_shape(self) -> tuple[int, ...] | None:
        """Shape of the weight; None for a product of two activations."""
        return None if self.weight is None else tuple(int(d) for d in _shape(self.node.inputs[self.weight]))

    @property
    def quantized_already(self) -> bool:
        """Whether the user's graph computes it in integers as it is: something that it reads comes out of a DequantizeLinear."""
        makers = [v.producer() for v in self.node.inputs if v is not None]
        return any(maker is not None and maker.op_type == "DequantizeLinear" for maker in makers)

    @property
    def parameters(self) -> int:
        """Number of elements of the weight."""
        return 0 if self.weight_shape is None else int(np.prod(self.weight_shape))


def _shape(value: ir.Value | None) -> Sequence[int]:
    array = constant(value)
    assert array is not None, "a weight is constant"
    return array.shape


def find_layers(model: ir.Model) -> tuple[Layer, ...]:
    """Every layer of the main graph, in its order; nodes without a name are given the one that their layer goes by.

    Raises:
        ModelError: Two layers have one name, so that a plan could not tell them apart.
    """
    layers = tuple(layer for node in model.graph if (layer := layer_of(node)) is not None)
    seen: set[str] = set()
    for layer in layers:
        if layer.name in seen:
            raise ModelError(f"two layers are called {layer.name!r}", hint="give every node of the graph a name of its own")
        seen.add(layer.name)
        layer.node.name = layer.name
    return layers


def no_layers(path: Path) -> str:
    """Why `find_layers` finds none in the model at `path`: it computes in another type, in integers already, in nested graphs, or in other operators."""
    model = read_model(path)
    nodes = list(model.graph)
    others = sorted({v.dtype.name for n in nodes if n.op_type in LAYER_OPS for v in n.inputs[:_OPERANDS] if v is not None and v.dtype not in {None, FLOAT32}})
    if others:
        return f"the model computes in {', '.join(others)}, not in FP32: bring it as it was trained"
    if any(n.op_type.startswith(("QLinear", "QGemm", "ConvInteger", "MatMulInteger", "DynamicQuantize")) for n in nodes):
        return "the model is quantized already"
    return nested_layers(model) or "the model has no layers"


def nested_layers(model: ir.Model) -> str:
    """What is to be said of layers in nested graphs, which are not among those of `find_layers` and stay as they are; empty where there are none."""
    found = Counter(node.op_type for graph in all_graphs(model.graph) if graph is not model.graph for node in graph if node.op_type in LAYER_OPS)
    if not found:
        return ""
    within = sorted({node.op_type for node in model.graph if any(a.type in _NESTED for a in node.attributes.values())})
    told = ", ".join(f"{op} {count}" for op, count in sorted(found.items()))
    where = f"lie in graphs nested in {' and '.join(within)}, which are left as they are"
    return f"{found.total()} {'layer' if found.total() == 1 else 'layers'} ({told}) {where}: bring the branch that is used as a graph of its own"


def layer_of(node: ir.Node) -> Layer | None:
    """The layer that `node` computes; None when it computes none."""
    if node.domain not in {"", "ai.onnx"} or len(node.inputs) < _OPERANDS:
        return None
    if node.op_type == TABLE_OP:
        return _table(node)
    return _product(node) if node.op_type in LAYER_OPS else None


def _product(node: ir.Node) -> Layer | None:
    left, right = node.inputs[0], node.inputs[1]
    if left is None or right is None or not _is_float(left, right):
        return None
    fixed = [constant(left) is not None, constant(right) is not None]
    name = node.name or f"{node.op_type}_{node.outputs[0].name}"
    if all(fixed):
        return None
    if node.op_type in {"Conv", "ConvTranspose", "Gemm"} and not fixed[1]:
        # A computed kernel: a product of two activations in all but name; no engine has an integer kernel for it.
        return Layer(name, node.op_type, node, None, None, (0, 1) if not fixed[0] else (1,))
    if not any(fixed):
        return Layer(name, node.op_type, node, None, None, (0, 1))
    weight = 1 if fixed[1] else 0
    return Layer(name, node.op_type, node, weight, _channel_axis(node, weight), (1 - weight,))


def _table(node: ir.Node) -> Layer | None:
    """A Gather of rows of a constant matrix of floats, by indices that are computed."""
    table, indices = node.inputs[0], node.inputs[1]
    array = constant(table)
    if array is None or table is None or constant(indices) is not None or attribute(node, "axis", 0) != 0:
        return None
    if array.ndim != _MATRIX or table.dtype not in {None, FLOAT32} or array.dtype != np.float32:
        return None
    return Layer(node.name or f"{TABLE_OP}_{node.outputs[0].name}", TABLE_OP, node, 0, None, ())


def _is_float(left: ir.Value, right: ir.Value) -> bool:
    known = [v.dtype for v in (left, right) if v.dtype is not None]
    return all(dtype == FLOAT32 for dtype in known)


def _channel_axis(node: ir.Node, weight: int) -> int | None:
    """Axis of the weight that output channels lie along (Conv `[out, in, ...]`, ConvTranspose `[in, out, ...]`, MatMul `[..., in, out]`)."""
    match node.op_type:
        case "Conv":
            return 0
        case "ConvTranspose":
            return 1
        case "Gemm":
            return (0 if attribute(node, "transB", 0) else 1) if weight == 1 else None
    rank = len(_shape(node.inputs[weight]))
    # A weight on the left has its channels in rows, which no engine scales, and a stack of matrices has as many sets of channels.
    return 1 if weight == 1 and rank == _MATRIX else None


def match_layers(layers: Sequence[Layer], patterns: Sequence[str], *, where: str = "") -> frozenset[str]:
    """Names of the layers that any of `patterns` matches (shell patterns: `*`, `?`, `[...]`; `op:Conv` matches by operator).

    Raises:
        PlanError: A pattern matches nothing; the hint names the nearest layers.
    """
    matched: set[str] = set()
    for pattern in patterns:
        if pattern.startswith("op:"):
            found = {layer.name for layer in layers if fnmatch.fnmatchcase(layer.op, pattern[3:])}
        else:
            found = {layer.name for layer in layers if layer.name == pattern or fnmatch.fnmatchcase(layer.name, pattern)}
        if not found:
            raise PlanError(f"pattern {pattern!r} matches no layer", where=where, hint=_nearest(pattern, layers))
        matched |= found
    return frozenset(matched)


def _nearest(pattern: str, layers: Sequence[Layer]) -> str:
    """What was probably meant: an operator, which is written `op:Gemm`, or the nearest names."""
    operators = sorted({layer.op for layer in layers})
    meant = next((op for op in operators if op.lower() == pattern.removeprefix("op:").strip("*").lower()), None)
    if meant is not None or pattern.startswith("op:"):
        return f"operators are written op:{meant}" if meant is not None else f"operators of this model: {', '.join(f'op:{op}' for op in operators)}"
    return did_you_mean(pattern.strip("*"), [layer.name for layer in layers])
