"""The clean-up: a graph in which every layer has its weight at hand, and nothing that inference does not need.

Weights of equal content are not merged, but for a table that an output layer holds turned over: later steps change the weights of each layer by themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from quant.graph.importing.batch_norm import fold_batch_norms
from quant.graph.importing.folding import fold_constants
from quant.graph.importing.prepare import free_weights, inline_functions, lift_constants, name_nodes
from quant.graph.importing.report import Step
from quant.graph.importing.surgery import bypass, is_op
from quant.graph.importing.tied import tie_tables
from quant.graph.importing.types import infer_types
from quant.graph.model import all_graphs, constant

Observe = Callable[[str, ir.Model], float | None]
"""Called with a step's name and the model after it; gives the largest absolute change of its outputs."""


def clean(model: ir.Model, *, observe: Observe | None = None) -> list[Step]:
    """Clean `model` up in place, and say what each step that did something changed.

    Names of inputs, outputs, weights and nodes stay. Graphs nested in If, Loop and Scan are only given names.

    Args:
        model: A model of operator set 13 or newer.
        observe: Looks at the model after each such step.
    """
    steps = []
    for name, step in _STEPS:
        count = step(model)
        if count:
            steps.append(Step(name=name, count=count, max_abs_change=observe(name, model) if observe else None))
    return steps


def remove_identities(model: ir.Model) -> int:
    """Remove Identity nodes of the main graph; gives their number."""
    return sum(_pass_through(model.graph, node) for node in list(model.graph) if is_op(node, "Identity"))


def remove_dropouts(model: ir.Model) -> int:
    """Remove Dropout nodes, which do nothing in inference; gives their number."""
    return sum(_pass_through(model.graph, node) for node in list(model.graph) if is_op(node, "Dropout") and not trains(node))


def trains(node: ir.Node) -> bool:
    """Whether a Dropout or BatchNormalization is written for training (or may be switched to it)."""
    if is_op(node, "BatchNormalization"):
        found = node.attributes.get("training_mode")
        return found is not None and bool(found.as_int())
    if not is_op(node, "Dropout") or len(node.inputs) < 3 or node.inputs[2] is None:  # noqa: PLR2004 - data, ratio, training_mode
        return False
    mode = constant(node.inputs[2])
    return mode is None or bool(np.any(mode))


def _pass_through(graph: ir.Graph, node: ir.Node) -> bool:
    source = node.inputs[0]
    if source is None or any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
        return False
    target = node.outputs[0]
    if source.shape is None:
        source.shape = target.shape
    if source.type is None:
        source.type = target.type
    if not bypass(target, source):
        return False
    graph.remove(node, safe=True)
    return True


def remove_unused(model: ir.Model) -> int:
    """Remove nodes and weights of the main graph that no output depends on; gives their number."""
    count = 0
    for node in reversed(list(model.graph)):
        if not any(o.uses() or o.is_graph_output() for o in node.outputs):
            model.graph.remove(node, safe=True)
            count += 1
    for name, value in list(model.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            model.graph.initializers.pop(name)
            count += 1
    return count


def _sort(model: ir.Model) -> int:
    """Bring nodes into an order in which each comes after what it reads; nothing counts as changed."""
    for graph in all_graphs(model.graph):
        graph.sort()
    return 0


_STEPS: tuple[tuple[str, Callable[[ir.Model], int]], ...] = (
    ("inline functions", inline_functions),
    ("weights are no inputs", free_weights),
    ("constants become weights", lift_constants),
    ("name nodes", name_nodes),
    ("sort", _sort),
    ("remove identities", remove_identities),
    ("remove dropouts", remove_dropouts),
    ("fold constants", fold_constants),
    ("fold batch norms", fold_batch_norms),
    ("tie tables", tie_tables),
    ("remove unused", remove_unused),
    ("infer types", infer_types),
)
