"""Names for what is added to a graph: near to what they belong to, and never one that is taken."""

from __future__ import annotations

import onnx_ir as ir

from quant.graph.model import all_graphs


class Names:
    """The names of all values and nodes of a graph and of those nested in it.

    Example:
        >>> names = Names(ir.Graph([], [], nodes=[], name="g"))
        >>> names.new("x_scale"), names.new("x_scale")
        ('x_scale', 'x_scale_2')
    """

    def __init__(self, graph: ir.Graph) -> None:
        self._taken: set[str] = set()
        for inner in all_graphs(graph):
            self._taken.update(str(v.name) for v in (*inner.inputs, *inner.initializers.values()))
            for node in inner:
                self._taken.update({str(node.name), *(str(v.name) for v in node.outputs)})

    def new(self, wanted: str) -> str:
        """`wanted`, or with a number behind it when that is taken; taken from now on."""
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name
