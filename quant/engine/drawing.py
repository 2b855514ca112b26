"""The graph of a model, brought down to what a picture of its plan needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from quant.graph.layers import Layer
from quant.report.graph import GraphPart, LayerGraph

_NO_VALUES = frozenset({"Shape", "Size"})
"""What they give says nothing of the values that they read, so nothing is drawn from there."""


def layer_graph(layers: Sequence[Layer]) -> LayerGraph | None:
    """Layers and what connects them; None for a model without layers.

    What reads one part alone belongs to it; what reads several is a join. A join that no layer and no output needs is left out.

    Args:
        layers: All layers of one graph.
    """
    graph = layers[0].node.graph if layers else None
    if not isinstance(graph, ir.Graph):
        return None
    found = {layer.node: layer for layer in layers}
    parts = [GraphPart(name=str(value.name), kind="input") for value in graph.inputs]
    origin: dict[ir.Value, int] = {value: place for place, value in enumerate(graph.inputs)}
    for node in graph:
        reads = () if node.op_type in _NO_VALUES else _unique(origin[value] for value in _read(node) if value in origin)
        layer = found.get(node)
        if layer is not None:
            parts.append(GraphPart(name=layer.name, op=layer.op, kind="layer", reads=reads))
        elif len(reads) > 1:
            parts.append(GraphPart(name=node.name or str(node.outputs[0].name), op=node.op_type, kind="join", reads=reads))
        elif not reads:
            continue
        made_by = len(parts) - 1 if layer is not None or len(reads) > 1 else reads[0]
        origin.update(dict.fromkeys(node.outputs, made_by))
    parts += [GraphPart(name=str(v.name), kind="output", reads=(origin[v],) if v in origin else ()) for v in graph.outputs]
    return LayerGraph(parts=_needed(parts))


def _unique(places: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(places))


def _read(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, by its inputs and from within the graphs nested in it."""
    yield from (value for value in node.inputs if value is not None)
    for held in node.attributes.values():
        nested = [held.as_graph()] if held.type == ir.AttributeType.GRAPH else held.as_graphs() if held.type == ir.AttributeType.GRAPHS else ()
        for graph in nested:
            for inner in graph:
                yield from _read(inner)
            yield from graph.outputs


def _needed(parts: Sequence[GraphPart]) -> tuple[GraphPart, ...]:
    """Without joins and inputs that nothing needs; places are counted anew."""
    needed = {place for place, part in enumerate(parts) if part.kind in {"layer", "output"}}
    for place in range(len(parts) - 1, -1, -1):
        if place in needed:
            needed.update(parts[place].reads)
    place_of = {old: new for new, old in enumerate(sorted(needed))}
    return tuple(parts[old].model_copy(update={"reads": tuple(place_of[read] for read in parts[old].reads)}) for old in sorted(needed))
