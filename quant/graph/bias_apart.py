"""Biases of FP16 and BF16 products as additions of their own, each sum rounded before: what an engine may do that adds them later."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quant.graph.halves import HALVES
from quant.graph.model import add_initializer, attribute
from quant.graph.names import Names

_BIAS = 2
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})


def take_biases_apart(model: ir.Model) -> int:
    """Let products of FP16 and BF16 be rounded before their bias is added, in place; gives how many. Types must be known."""
    graph, names = model.graph, Names(model.graph)
    found = [node for node in graph if _is_apart(node)]
    for node in found:
        _split(graph, node, names)
    return len(found)


def _is_apart(node: ir.Node) -> bool:
    if node.op_type not in _CONVOLUTIONS | {"Gemm"} or len(node.inputs) <= _BIAS or node.inputs[_BIAS] is None or node.outputs[0].dtype not in HALVES:
        return False
    if node.op_type == "Gemm":
        return bool(attribute(node, "beta", 1.0) == 1.0)
    return _rank(node) is not None


def _rank(node: ir.Node) -> int | None:
    shapes = [value.shape for value in (node.inputs[0], node.inputs[1], node.outputs[0]) if value is not None and value.shape is not None]
    return len(shapes[0]) if shapes else None


def _split(graph: ir.Graph, node: ir.Node, names: Names) -> None:
    total, bias = node.outputs[0], node.inputs[_BIAS]
    dtype = total.dtype
    assert bias is not None, "there is a bias"
    assert dtype is not None, "only products of a known type are taken apart"
    made = []
    if node.op_type in _CONVOLUTIONS:
        axes = add_initializer(graph, names.new(f"{node.name}_bias_axes"), np.arange(1, (_rank(node) or 0) - 1, dtype=np.int64))
        made.append(ir.node("Unsqueeze", [bias, axes], name=names.new(f"{node.name}_bias_spread")))
        spread = made[0].outputs[0]
        spread.name, spread.dtype = names.new(f"{node.name}_bias_along"), dtype
        bias = spread
    node.resize_inputs(_BIAS)
    added = ir.node("Add", [total, bias], name=names.new(f"{node.name}_bias_added"))
    after = added.outputs[0]
    after.dtype, after.shape = dtype, total.shape
    ir.convenience.replace_all_uses_with(total, after, replace_graph_outputs=True)
    added.replace_input_with(0, total)
    total.name, after.name = names.new(f"{total.name}_before_its_bias"), total.name
    graph.insert_after(node, [*made, added])
