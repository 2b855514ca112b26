"""The graph of a model as far as a picture shows it: its layers, what comes in and goes out, and where branches meet."""

from __future__ import annotations

from typing import Literal

from quant.core.documents import Document


class GraphPart(Document):
    """A layer, an input or output of the model, or an operation in which branches meet.

    Args:
        name: Its name in the graph.
        op: Its operator; empty for inputs and outputs.
        kind: `layer`, `join` (an operation that is no layer and reads more than one of the others), `input` or `output`.
        reads: Places, in the list of all parts, of those that it is computed from; always before its own.
    """

    name: str
    op: str = ""
    kind: Literal["layer", "join", "input", "output"]
    reads: tuple[int, ...] = ()


class LayerGraph(Document):
    """The parts of a graph, in its order.

    Args:
        parts: Everything that a picture shows; what lies between (activations, reshapes, normalizations) is left out.
    """

    parts: tuple[GraphPart, ...]
