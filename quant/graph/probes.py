"""Probes: a graph that itself computes the largest magnitude of its float tensors, so that none of them has to leave it."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from quant.graph.fp16 import STAND_IN_FOR_INFINITY
from quant.graph.layers import FLOAT32
from quant.graph.model import add_initializer, constant
from quant.graph.names import Names

_BOUNDED = frozenset({"Softmax", "Sigmoid", "HardSigmoid", "Tanh", "Erf", "Softsign", "LayerNormalization", "InstanceNormalization", "Sin", "Cos"})
"""Operators that give nothing large, whatever they get."""


def add_probes(model: ir.Model, *, besides: Collection[str]) -> dict[str, str]:
    """Give `model` an output for the largest magnitude of each float tensor but for `besides`; gives probe output -> tensor.

    Stand-ins for infinity (masks) count as 0, so that they do not hide what is computed. Leaving them out costs more than the
    maximum itself, so that is done only where a mask may come from: a constant of such a size, or one of several inputs.
    """
    graph = model.graph
    names = Names(graph)
    inputs = [v for v in graph.inputs if v.dtype == FLOAT32]
    masked = _maybe_masked(graph, inputs if len(graph.inputs) > 1 else [])
    values = inputs + [v for node in graph for v in node.outputs if v.dtype == FLOAT32 and constant(v) is None]
    bound = add_initializer(graph, names.new("probe_bound"), np.array(STAND_IN_FOR_INFINITY, np.float32))
    zero = add_initializer(graph, names.new("probe_zero"), np.array(0, np.float32))
    probes: dict[str, str] = {}
    for value in (v for v in values if v.name not in besides):
        nodes = [ir.node("Abs", [value])]
        if value in masked:
            nodes.append(ir.node("Less", [nodes[0].outputs[0], bound]))
            nodes.append(ir.node("Where", [nodes[1].outputs[0], nodes[0].outputs[0], zero]))
        nodes.append(ir.node("ReduceMax", [nodes[-1].outputs[0]], attributes={"keepdims": 0}))
        for node in nodes:
            node.outputs[0].name = names.new(f"probe_{node.op_type}_{value.name}")
            node.outputs[0].dtype = ir.DataType.BOOL if node.op_type == "Less" else FLOAT32
        top = nodes[-1].outputs[0]
        top.shape = ir.Shape([])
        graph.extend(nodes)
        graph.outputs.append(top)
        probes[str(top.name)] = str(value.name)
    return probes


def add_outputs(model: ir.Model, names: Collection[str]) -> None:
    """Give out the tensors called `names`, behind the outputs that the graph has; those that it gives out already are left alone."""
    values = {str(v.name): v for node in model.graph for v in node.outputs}
    present = {v.name for v in model.graph.outputs}
    model.graph.outputs.extend(values[name] for name in names if name not in present)


def _maybe_masked(graph: ir.Graph, inputs: Collection[ir.Value]) -> set[ir.Value]:
    """Values that stand-ins for infinity may have come into, from `inputs` or from constants."""
    found = set(inputs)
    for node in graph:
        if node.op_type not in _BOUNDED and (_holds_large(node) or any(v in found for v in node.inputs)):
            found.update(node.outputs)
    return found


def _holds_large(node: ir.Node) -> bool:
    """Whether a constant that `node` reads or holds is a stand-in for infinity, or may be (in a nested graph)."""
    arrays = [constant(v) for v in node.inputs]
    for attribute in node.attributes.values():
        if attribute.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}:
            return True
        if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
            arrays.append(attribute.as_tensor().numpy())
        elif attribute.type == ir.AttributeType.FLOAT and not attribute.is_ref():
            arrays.append(np.array(attribute.as_float(), np.float32))
    return any(a is not None and a.dtype.kind == "f" and a.size > 0 and not float(np.abs(a).max()) < STAND_IN_FOR_INFINITY for a in arrays)
