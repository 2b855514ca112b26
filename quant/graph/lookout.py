"""Looking into a graph while it runs: which tensors can be given out beside its outputs, and what lies before and behind them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from quant.graph.importing.types import infer_types
from quant.graph.model import FLOATS, constant
from quant.graph.names import Names

_PASSING = frozenset({"QuantizeLinear", "DequantizeLinear", "Cast", "Identity"})
"""Operators that a tensor is looked for beyond, when it is asked which layer made it."""
_MOST_READERS = 4


@dataclass(frozen=True)
class Watched:
    """A float tensor inside a graph that can be given out.

    Args:
        tensor: Its name.
        layer: Name of the operation that makes it; Q/DQ and casts are not counted.
        op: Operator of that.
        before: Graph inputs and watched tensors that it is computed from, the nearest ones.
        behind: Names of the operations that read it.
    """

    tensor: str
    layer: str
    op: str
    before: tuple[str, ...]
    behind: tuple[str, ...]


class Lookout:
    """The tensors of a graph that are worth a look, in the order in which they are computed.

    Left out is what comes from weights alone, what are no floats, and what is only read to be quantized: the dequantized
    tensor stands for it, which engines can give out without undoing the fusion that it belongs to.

    Args:
        model: The graph; types that it does not tell are inferred, in place.
    """

    def __init__(self, model: ir.Model) -> None:
        infer_types(model)
        self._graph = model.graph
        self._fixed = _fixed_values(model.graph)
        outputs = set(model.graph.outputs)
        values = [v for node in model.graph for v in node.outputs]
        self._watched = {v for v in values if v.dtype in FLOATS and v not in self._fixed and v not in outputs and not _only_quantized(v)}
        self.tensors: tuple[Watched, ...] = tuple(self._describe(v) for v in values if v in self._watched)

    def output(self, name: str) -> Watched:
        """An output of the graph, described like the tensors inside."""
        return self._describe(next(v for v in self._graph.outputs if v.name == name))

    def _describe(self, value: ir.Value) -> Watched:
        maker = value.producer()
        while maker is not None and maker.op_type in _PASSING and maker.inputs[0] is not None and maker.inputs[0].producer() is not None:
            maker = maker.inputs[0].producer()
        name = "" if maker is None else maker.name or f"{maker.op_type} that makes {maker.outputs[0].name}"
        return Watched(str(value.name), name, "" if maker is None else maker.op_type, tuple(self._before(value)), tuple(_readers(value)))

    def _before(self, value: ir.Value) -> Iterable[str]:
        """The nearest watched tensors and graph inputs that `value` is computed from."""
        seen: set[ir.Value] = set()
        waiting = [value]
        found: dict[str, None] = {}
        while waiting:
            for source in _sources(waiting.pop(0)):
                if source in seen or source in self._fixed:
                    continue
                seen.add(source)
                if source in self._watched or source.producer() is None:
                    found[str(source.name)] = None
                else:
                    waiting.append(source)
        return found


def _sources(value: ir.Value) -> list[ir.Value]:
    """What the maker of `value` reads, also inside graphs nested in it."""
    maker = value.producer()
    if maker is None:
        return []
    inner = [a for a in maker.attributes.values() if a.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}]
    graphs = [g for a in inner for g in ([a.as_graph()] if a.type == ir.AttributeType.GRAPH else a.as_graphs())]
    own = {v for g in graphs for n in g for v in n.outputs} | {v for g in graphs for v in (*g.inputs, *g.initializers.values())}
    captured = [v for g in graphs for n in g for v in n.inputs if v is not None and v not in own]
    return [v for v in maker.inputs if v is not None] + captured


def _fixed_values(graph: ir.Graph) -> set[ir.Value]:
    """Values that depend on no input of the graph."""
    fixed: set[ir.Value] = set(graph.initializers.values()) - set(graph.inputs)
    for node in graph:
        inner = any(a.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS} for a in node.attributes.values())
        if not inner and all(v is None or v in fixed or constant(v) is not None for v in node.inputs):
            fixed.update(node.outputs)
    return fixed


def _only_quantized(value: ir.Value) -> bool:
    readers = [node for node, _ in value.uses()]
    return bool(readers) and all(node.op_type == "QuantizeLinear" for node in readers)


def _readers(value: ir.Value) -> list[str]:
    """The operations that read `value`, looked for beyond Q/DQ and casts."""
    found: dict[str, None] = {}
    waiting = [value]
    while waiting and len(found) < _MOST_READERS:
        for node, _ in waiting.pop(0).uses():
            if node.op_type in _PASSING:
                waiting.extend(node.outputs)
            else:
                found[node.name or f"{node.op_type} that makes {node.outputs[0].name}"] = None
    return list(found)[:_MOST_READERS]


def give_out(model: ir.Model, tensors: Collection[str]) -> Mapping[str, str]:
    """Make `tensors` outputs of `model`, in place, behind those that it has; gives output -> tensor. All are given out as FP32."""
    graph = model.graph
    names = Names(graph)
    found: dict[str, str] = {}
    for value in _named(graph, tensors):
        if value.dtype in {None, ir.DataType.FLOAT}:
            given = value
        else:
            cast = ir.node("Cast", [value], attributes={"to": int(ir.DataType.FLOAT)}, name=names.new(f"{value.name}_given_out"))
            given = cast.outputs[0]
            given.name, given.shape, given.dtype = names.new(f"{value.name}_out"), value.shape, ir.DataType.FLOAT
            graph.append(cast)
        given.dtype = ir.DataType.FLOAT
        graph.outputs.append(given)
        found[str(given.name)] = str(value.name)
    return found


def _named(graph: ir.Graph, tensors: Collection[str]) -> Sequence[ir.Value]:
    return [v for node in graph for v in node.outputs if v.name in tensors]
