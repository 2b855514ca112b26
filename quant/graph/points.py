"""Where Q/DQ stand: which tensors a plan quantizes in a dialect, on which grid, and for whom."""

from __future__ import annotations

from collections.abc import Collection, Container

import onnx_ir as ir

from quant.core.dialect import KNOWN_RANGES, Dialect
from quant.core.formats import Grid, Range
from quant.graph.layers import FLOAT32, LAYER_OPS, Layer
from quant.graph.model import constant

_NEVER_NEGATIVE = frozenset({"Relu", "Sigmoid", "Softmax"})


def insertion_points(model: ir.Model, layers: Collection[Layer], dialect: Dialect) -> dict[str, Grid]:
    """Tensors that get Q/DQ when `layers` are quantized in `dialect`, each with its grid.

    These are the tensors whose ranges calibration must find.
    """
    return spread(model, layers, dialect)[0]


def known_ranges(model: ir.Model, points: Container[str], dialect: Dialect) -> dict[str, Range]:
    """Those of `points` whose range `dialect` takes as known, whatever calibration sees: the outputs of Softmax, say."""
    made = [(str(node.outputs[0].name), node.op_type) for node in model.graph if node.op_type in dialect.known]
    return {name: KNOWN_RANGES[op] for name, op in made if name in points}


def spread(model: ir.Model, layers: Collection[Layer], dialect: Dialect) -> tuple[dict[str, Grid], frozenset[str]]:
    """Tensors that get Q/DQ, and which of them are read quantized by everybody, so that what makes them may compute in integers."""
    points: dict[str, Grid] = {}
    chosen = {id(layer.node) for layer in layers}
    for layer in layers:
        for position in layer.activations:
            value = layer.node.inputs[position]
            assert value is not None
            points.setdefault(str(value.name), _grid(layer, position, value, dialect))
    everywhere: set[str] = set()
    for node in model.graph:
        is_layer = id(node) in chosen
        if node.op_type not in dialect.chained or not (is_layer or _all_quantized(node, everywhere)):
            continue
        end = _chain_end(node, dialect)
        if end.dtype == FLOAT32 and (is_layer or not end.is_graph_output()):
            points.setdefault(str(end.name), dialect.activations)
            everywhere.add(str(end.name))
    return points, frozenset(everywhere)


def _grid(layer: Layer, position: int, value: ir.Value, dialect: Dialect) -> Grid:
    """The grid of what `layer` reads at `position`."""
    if layer.weight is not None:
        return dialect.activations
    if position == 1:
        return dialect.operands
    maker = value.producer()
    never_negative = maker is not None and maker.op_type in _NEVER_NEGATIVE
    return dialect.activations if dialect.left_operands is None or never_negative else dialect.left_operands


def _all_quantized(node: ir.Node, everywhere: Collection[str]) -> bool:
    """Whether a node that is no layer reads nothing but codes: no kernel adds integers to floats."""
    if node.op_type in LAYER_OPS:
        return False
    floats = [v for v in node.inputs if v is not None and v.dtype == FLOAT32]
    return bool(floats) and all(v.name in everywhere for v in floats)


def _chain_end(node: ir.Node, dialect: Dialect) -> ir.Value:
    """The tensor behind `node`, or behind the activation function that melts into it."""
    end = node.outputs[0]
    uses = list(end.uses())
    if len(uses) == 1 and not end.is_graph_output() and node.op_type not in dialect.transparent:
        reader, position = uses[0]
        if reader.op_type in dialect.melting and position == 0 and reader.graph is node.graph and _melts(reader):
            return reader.outputs[0]
    return end


def _melts(node: ir.Node) -> bool:
    """Whether the codes of what `node` gives say all that it does: values below 0 are 0, and those above the range its end.

    A Clip that does not start at 0 would need a scale that meets its bounds exactly.
    """
    if node.op_type != "Clip":
        return True
    bounds = [node.inputs[i] if i < len(node.inputs) else None for i in (1, 2)]
    low, high = (constant(v) for v in bounds)
    if low is None or (high is None and bounds[1] is not None):
        return False
    return bool(low.size == 1 and low == 0 and (high is None or high > 0))
