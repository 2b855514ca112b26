"""Relu in other words, for an engine that drops it where it should not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quant.graph.model import add_initializer
from quant.graph.names import Names

_SIGNED_FLOATS = frozenset({ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT4E2M1})


def spell_out_relus(model: ir.Model) -> int:
    """Write each Relu that is quantized to floats of 8 or 4 bits as Max(x, 0), in place; gives their number.

    ONNX Runtime 1.32 drops a Relu before a QuantizeLinear whose zero point has all bits 0, as if that were the lowest code. It is
    of unsigned integers; of FP8 it is 0 itself, so that everything negative comes through (its optimizer `ReluQuantRewrite`).
    """
    names = Names(model.graph)
    found = [node for node in model.graph if node.op_type == "Relu" and any(_to_floats(reader) for reader, _ in node.outputs[0].uses())]
    for node in found:
        source, output = node.inputs[0], node.outputs[0]
        dtype = np.float32 if output.dtype is None else output.dtype.numpy()
        zero = add_initializer(model.graph, names.new(f"{output.name}_zero"), np.zeros((), dtype))
        largest = ir.node("Max", [source, zero], name=node.name)
        largest.outputs[0].type, largest.outputs[0].shape = output.type, output.shape
        model.graph.insert_before(node, largest)
        ir.convenience.replace_all_uses_with(output, largest.outputs[0], replace_graph_outputs=True)
        name = output.name
        model.graph.remove(node, safe=True)
        largest.outputs[0].name = name
    return len(found)


def _to_floats(node: ir.Node) -> bool:
    """Whether `node` quantizes to floats of few bits, as its zero point or the type of its codes says."""
    told = {value.dtype for value in (*node.inputs[2:], *node.outputs) if value is not None}
    return node.op_type == "QuantizeLinear" and bool(told & _SIGNED_FLOATS)
