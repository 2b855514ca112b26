"""Relu and Clip in other words, for an engine that mistakes them where they are quantized to floats of few bits."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quant.graph.model import add_initializer
from quant.graph.names import Names

_MOVING = frozenset({"Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose outputs are values of their inputs: ONNX Runtime moves a QuantizeLinear from behind most of them to their front."""
_SIGNED_FLOATS = frozenset({ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT4E2M1})


def spell_out_bounds(model: ir.Model) -> int:
    """Write each Relu and Clip that is quantized to floats of 8 or 4 bits as Max and Min, in place; gives their number.

    ONNX Runtime 1.32 drops a Relu before a QuantizeLinear whose zero point has all bits 0, as if that were the lowest code. It is
    of unsigned integers; of FP8 it is 0 itself, so that everything negative comes through (its optimizer `ReluQuantRewrite`), also
    where only operators that move values stand between them: it brings the QuantizeLinear past those first
    (`QDQPropagationTransformer`). A Clip before FP8 it refuses to load, for want of that type's ends (`ClipQuantRewrite`).
    """
    names = Names(model.graph)
    found = [node for node in model.graph if _bounds_something(node) and _is_quantized_to_floats(node.outputs[0])]
    for node in found:
        output = node.outputs[0]
        value = node.inputs[0]
        for number, (op, bound) in enumerate(_bounds(model.graph, node, names)):
            made = ir.node(op, [value, bound], name=names.new(f"{node.name}_{op}") if number else node.name)
            value = made.outputs[0]
            value.name, value.type, value.shape = names.new(f"{output.name}_{op}"), output.type, output.shape
            model.graph.insert_before(node, made)
        assert value is not None, "these operators read something"
        ir.convenience.replace_all_uses_with(output, value, replace_graph_outputs=True)
        name = output.name
        model.graph.remove(node, safe=True)
        value.name = name
    return len(found)


def _is_quantized_to_floats(value: ir.Value) -> bool:
    """Whether `value` is quantized to floats of few bits, as it is or moved."""
    return any(_to_floats(n) or (n.op_type in _MOVING and at == 0 and _is_quantized_to_floats(n.outputs[0])) for n, at in value.uses())


def _bounds_something(node: ir.Node) -> bool:
    return node.op_type == "Relu" or (node.op_type == "Clip" and any(bound is not None for bound in node.inputs[1:]))


def _bounds(graph: ir.Graph, node: ir.Node, names: Names) -> list[tuple[str, ir.Value]]:
    """(operator, operand) pairs that together do what `node` does."""
    output = node.outputs[0]
    if node.op_type == "Relu":
        dtype = np.float32 if output.dtype is None else output.dtype.numpy()
        return [("Max", add_initializer(graph, names.new(f"{output.name}_zero"), np.zeros((), dtype)))]
    given = [*node.inputs[1:], None, None][:2]
    return [(op, bound) for op, bound in zip(("Max", "Min"), given, strict=True) if bound is not None]


def _to_floats(node: ir.Node) -> bool:
    """Whether `node` quantizes to floats of few bits, as its zero point or the type of its codes says."""
    told = {value.dtype for value in (*node.inputs[2:], *node.outputs) if value is not None}
    return node.op_type == "QuantizeLinear" and bool(told & _SIGNED_FLOATS)
