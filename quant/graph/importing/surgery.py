"""Small operations on a graph that keep the user's inputs, outputs and names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from quant.graph.model import all_graphs

DEFAULT_DOMAINS = frozenset({"", "ai.onnx"})


def is_op(node: ir.Node | None, *op_types: str) -> bool:
    """Whether `node` is one of `op_types` of the default operator set."""
    return node is not None and node.domain in DEFAULT_DOMAINS and node.op_type in op_types


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node of the main graph and of the graphs nested in it."""
    for graph in all_graphs(model.graph):
        yield from graph


def weight_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer of the main graph that no caller can override, else None."""
    if value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return value.const_value


def bypass(value: ir.Value, by: ir.Value) -> bool:
    """Let `by` take the place of `value` everywhere; an output of the graph keeps its name, shape and type.

    Gives False, and changes nothing, when the graph needs `value` as it is: an output may be neither an input, a weight,
    another output, nor a value of an outer graph.
    """
    if value.is_graph_output():
        producer = by.producer()
        owner = value.producer()
        if producer is None or owner is None or producer.graph is not owner.graph or by.is_graph_output():
            return False
        name, shape, dtype = value.name, value.shape, value.type
        ir.convenience.replace_all_uses_with(value, by, replace_graph_outputs=True)
        value.name = None
        by.name = name
        by.shape = shape if shape is not None else by.shape
        by.type = dtype or by.type
        return True
    ir.convenience.replace_all_uses_with(value, by)
    return True


def replace_node(graph: ir.Graph | ir.Function, old: ir.Node, new: ir.Node) -> None:
    """Put `new` where `old` is; its output takes the name, type and place of the old one's."""
    value, fresh = old.outputs[0], new.outputs[0]
    fresh.type, fresh.shape = value.type, value.shape
    graph.insert_before(old, new)
    name = value.name
    ir.convenience.replace_all_uses_with(value, fresh, replace_graph_outputs=True)
    graph.remove(old, safe=True)
    value.name = None
    fresh.name = name


def has_one_use(value: ir.Value) -> bool:
    """Whether exactly one node reads `value`, once, and it is no output of the graph."""
    return len(value.uses()) == 1 and not value.is_graph_output()


def name_outputs(graph: ir.Graph, names: Sequence[str]) -> None:
    """Call the outputs of `graph` by `names`, in order; other values of such a name are renamed.

    An output that is an input, a weight, or the same value as another output gets an Identity of its own.
    """
    taken = {v.name for v in values_of(graph)}
    for value in [v for v in values_of(graph) if v.name in names and v not in graph.outputs]:
        assert not value.is_graph_input(), "an input and an output of the same name"
        fresh = _fresh(f"{value.name}_inner", taken | set(names))
        taken.add(fresh)
        _rename(graph, value, fresh)
    seen: set[int] = set()
    for position, name in enumerate(names):
        value = graph.outputs[position]
        if id(value) in seen or value.producer() is None:
            node = ir.node("Identity", [value], name=f"Identity_{name}")
            node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
            graph.append(node)
            graph.outputs[position] = node.outputs[0]
        seen.add(id(graph.outputs[position]))
    for position in range(len(names)):  # through names that nothing has, so that outputs may trade names
        graph.outputs[position].name = _fresh(f"{names[position]}_pending", taken | set(names))
        taken.add(str(graph.outputs[position].name))
    for position, name in enumerate(names):
        graph.outputs[position].name = name


def values_of(graph: ir.Graph) -> list[ir.Value]:
    """Inputs, weights and computed values of `graph`, without those of nested graphs."""
    unique = {id(v): v for v in (*graph.inputs, *graph.initializers.values(), *(o for node in graph for o in node.outputs))}
    return list(unique.values())


def _rename(graph: ir.Graph, value: ir.Value, name: str) -> None:
    if value.is_initializer():
        tensor = value.const_value
        graph.initializers.pop(str(value.name))
        value.name = name
        value.const_value = tensor
        graph.initializers[name] = value
    else:
        value.name = name


def rename_weight(graph: ir.Graph, value: ir.Value, name: str) -> bool:
    """Call the weight `value` by `name`, unless another value has that name."""
    if any(v.name == name for v in values_of(graph)):
        return False
    _rename(graph, value, name)
    return True


def _fresh(name: str, taken: set[str | None] | set[str]) -> str:
    number, fresh = 1, name
    while fresh in taken:
        number += 1
        fresh = f"{name}_{number}"
    return fresh
