"""The part of a graph that a change reaches: which nodes, cut out of the graph, with what they read of the rest as inputs."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from quant.graph.layers import FLOAT32
from quant.graph.model import all_graphs, constant, drop_unused_weights


def name_of(node: ir.Node) -> str:
    """What a node goes by: its name, or its operator and first output."""
    return node.name or f"{node.op_type}_{node.outputs[0].name}"


def changed_nodes(before: ir.Model, after: ir.Model) -> set[ir.Node]:
    """The nodes of `after` that `before` does not have, or that compute from what such a node gives.

    `after` was made from a copy of `before`: a weight is the same only if it is the same tensor.
    """
    known = {str(node.outputs[0].name): node for node in before.graph}
    weights = before.graph.initializers
    changed: set[ir.Node] = set()
    other: set[ir.Value] = set()
    for name, value in after.graph.initializers.items():
        if name not in weights or weights[name].const_value is not value.const_value:
            other.add(value)
    for node in after.graph:
        was = known.get(str(node.outputs[0].name))
        same = was is not None and was.op_type == node.op_type and [_name(v) for v in was.inputs] == [_name(v) for v in node.inputs]
        if not same or any(v in other for v in _read(node)):
            changed.add(node)
            other.update(node.outputs)
    return changed


def values_behind(model: ir.Model, node: ir.Node) -> set[str]:
    """Computed values that `node`, or what computes from what it gives, reads from the rest of the graph."""
    made = set(node.outputs)
    read: set[ir.Value] = set(_read(node))
    for other in model.graph:
        if other is not node and any(v in made for v in _read(other)):
            made.update(other.outputs)
            read |= _read(other)
    return {str(v.name) for v in read - made if not v.is_initializer() and constant(v) is None}


def nodes_before(model: ir.Model, value: ir.Value) -> set[ir.Node]:
    """The node that makes `value`, and all that it is computed from."""
    found: set[ir.Node] = set()
    waiting = [value.producer()]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found and node.graph is model.graph:
            found.add(node)
            waiting += [v.producer() for v in _read(node)]
    return found


def keep_only(model: ir.Model, nodes: Collection[ir.Node], outputs: Collection[str] | None = None) -> tuple[str, ...]:
    """Cut `model` down to `nodes`, in place; what they read of others becomes its inputs, whose names are given.

    Args:
        model: The graph; types of its values must be known.
        nodes: Nodes of its main graph, with all that is behind them.
        outputs: Values that `nodes` make and that are to be given out; None: the graph's own outputs among them.
    """
    graph = model.graph
    kept = set(nodes)
    fixed = [node for node in graph if node not in kept and node.op_type == "Constant"]
    made = {v for node in kept for v in node.outputs}
    wanted = [v for v in graph.outputs if v in made] if outputs is None else [v for node in graph for v in node.outputs if v.name in outputs]
    wanted = [v for v in dict.fromkeys(wanted) if v in made]
    read: dict[ir.Value, None] = {}
    for node in graph:
        if node in kept:
            read.update(dict.fromkeys(v for v in sorted(_read(node), key=_name) if v not in made))
    free = [v for v in read if not (v.is_initializer() and not v.is_graph_input()) and v.producer() not in fixed]
    graph.outputs[:] = wanted  # first: what is given out cannot be replaced
    given = []
    for value in free:
        stand_in = ir.Value(name=value.name, type=value.type or ir.TensorType(FLOAT32), shape=value.shape)
        ir.convenience.replace_all_uses_with(value, stand_in)
        given.append(stand_in)
    graph.inputs[:] = given
    _take_out(graph, [node for node in graph if node not in kept and node not in fixed])
    _take_out(graph, [node for node in fixed if not node.outputs[0].uses()])
    drop_unused_weights(graph)
    return tuple(str(v.name) for v in given)


def _take_out(graph: ir.Graph, nodes: Collection[ir.Node]) -> None:
    """Remove `nodes`, which read nothing afterwards, nor does what is nested in them."""
    for node in nodes:
        for inner in (node, *(n for g in _nested(node) for n in _all_nodes(g))):
            for position in range(len(inner.inputs)):
                inner.replace_input_with(position, None)
    graph.remove(nodes)


def _all_nodes(graph: ir.Graph) -> list[ir.Node]:
    """The nodes of `graph` and of the graphs nested in it."""
    return [node for inner in all_graphs(graph) for node in inner]


def _nested(node: ir.Node) -> list[ir.Graph]:
    """The graphs that `node` holds."""
    found: list[ir.Graph] = []
    for inner in node.attributes.values():
        if inner.type == ir.AttributeType.GRAPH:
            found.append(inner.as_graph())
        elif inner.type == ir.AttributeType.GRAPHS:
            found += inner.as_graphs()
    return found


def _name(value: ir.Value | None) -> str:
    return "" if value is None else str(value.name)


def _read(node: ir.Node) -> set[ir.Value]:
    """What `node` reads, also inside graphs nested in it."""
    found = {v for v in node.inputs if v is not None}
    for graph in _nested(node):
        own = {*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs)}
        found |= {v for n in graph for v in _read(n)} - own
        found |= {v for v in graph.outputs if v not in own}
    return found
