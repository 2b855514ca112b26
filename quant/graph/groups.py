"""Dynamic INT8 for an engine that itself quantizes what it multiplies INT8 weights with, in groups along the sum.

What it does is written out in ONNX, so that the graph says what will be computed: for each row, every `group` values share
the scale max|x| / 127, and are rounded to whole steps of it. When the graph is handed to the engine, that is taken out again,
and the engine is told the size of its groups instead.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.formats import slice_extremes
from quant.graph.layers import FLOAT32, Layer
from quant.graph.model import add_initializer, attribute, constant, drop_unused_weights, opset
from quant.graph.names import Names

_MARK = "quant.group"
_STEPS = 127
_LEAST = np.float32(np.finfo(np.float32).tiny)
_AXES_ARE_INPUTS = 18


def group_obstacle(layer: Layer, group: int) -> str | None:
    """Why what `layer` multiplies cannot be quantized in groups of `group` values; None when it can."""
    source, shape = layer.node.inputs[layer.activations[0]], layer.weight_shape
    assert source is not None and shape is not None, "a layer with a weight"  # noqa: PT018 - for mypy
    if source.shape is None or len(source.shape) < 2:  # noqa: PLR2004 - rows, and what is summed
        return "the number of axes of its input is not known" if source.shape is None else "its input is a vector"
    summed = _summed(layer)
    return f"it sums {summed} products, no multiple of the {group} that share a scale" if summed % group else None


def _summed(layer: Layer) -> int:
    shape = layer.weight_shape
    assert shape is not None, "a layer with a weight"
    return shape[1 if attribute(layer.node, "transB", 0) else 0]


def write_grouped(model: ir.Model, layers: Collection[Layer], dialect: Dialect, *, per_channel: bool = True) -> None:
    """Rewrite `layers` of `model` in place: codes of their weights, and rounding of what they read, once for all that share it."""
    graph, names = model.graph, Names(model.graph)
    rounded: dict[ir.Value, ir.Value] = {}
    for layer in layers:
        source = layer.node.inputs[layer.activations[0]]
        assert source is not None, "a layer reads something"
        if source not in rounded:
            rounded[source] = _Rounding(model, names, group=dialect.dynamic_group, summed=_summed(layer)).write(source)
        _write_weight(graph, layer, dialect, names, per_channel=per_channel)
        layer.node.replace_input_with(layer.activations[0], rounded[source])
    drop_unused_weights(graph)


def _write_weight(graph: ir.Graph, layer: Layer, dialect: Dialect, names: Names, *, per_channel: bool) -> None:
    weights = constant(layer.node.inputs[1])
    assert weights is not None, "a weight is constant"
    axis = layer.channel_axis if per_channel else None
    params = dialect.weights.params(*slice_extremes(weights.astype(np.float32), axis))
    codes = dialect.weights.quantize(weights.astype(np.float32), params, axis)
    inputs = [
        add_initializer(graph, names.new(f"{layer.name}_weight_quantized"), codes),
        add_initializer(graph, names.new(f"{layer.name}_weight_scale"), params.scale),
        add_initializer(graph, names.new(f"{layer.name}_weight_zero_point"), np.asarray(params.zero_point, codes.dtype)),
    ]
    node = ir.node("DequantizeLinear", inputs, attributes={} if axis is None else {"axis": axis}, name=names.new(f"{layer.name}_weight_DequantizeLinear"))
    node.outputs[0].name, node.outputs[0].dtype, node.outputs[0].shape = names.new(f"{layer.name}_weight_dequantized"), FLOAT32, ir.Shape(codes.shape)
    graph.insert_before(layer.node, node)
    layer.node.replace_input_with(1, node.outputs[0])


class _Rounding:
    """Writes the rounding of one tensor in groups along its last axis."""

    def __init__(self, model: ir.Model, names: Names, *, group: int, summed: int) -> None:
        self._model, self._names, self._group, self._summed = model, names, group, summed
        self._nodes: list[ir.Node] = []

    def write(self, source: ir.Value) -> ir.Value:
        """The rounded tensor; its last node is marked with the size of the groups."""
        assert source.shape is not None, "group_obstacle leaves out what has no known rank"
        before = [0] * (len(source.shape) - 1)  # as they are
        stem = str(source.name)
        grouped = self._add("Reshape", stem, "grouped", source, self._constant(stem, "groups", [*before, self._summed // self._group, self._group]))
        largest = self._largest(stem, self._add("Abs", stem, "magnitudes", grouped))
        whole = self._add("Div", stem, "step", largest, self._constant(stem, "steps", np.float32(_STEPS)))
        step = self._add("Max", stem, "step_above_0", whole, self._constant(stem, "least_step", _LEAST))
        codes = self._add("Round", stem, "codes", self._add("Div", stem, "in_steps", grouped, step))
        result = self._add("Reshape", stem, "rounded", self._add("Mul", stem, "back", codes, step), self._constant(stem, "rows", [*before, self._summed]))
        result.shape = source.shape
        self._nodes[-1].metadata_props[_MARK] = str(self._group)
        graph, maker = self._model.graph, source.producer()
        if maker is None:
            graph.insert_before(graph[0], self._nodes)
        else:
            graph.insert_after(maker, self._nodes)
        return result

    def _largest(self, stem: str, values: ir.Value) -> ir.Value:
        if opset(self._model) >= _AXES_ARE_INPUTS:
            return self._add("ReduceMax", stem, "largest", values, self._constant(stem, "last_axis", [-1]))
        return self._add("ReduceMax", stem, "largest", values, axes=[-1])

    def _constant(self, stem: str, what: str, value: list[int] | np.float32) -> ir.Value:
        array = np.asarray(value) if isinstance(value, np.float32) else np.asarray(value, np.int64)
        return add_initializer(self._model.graph, self._names.new(f"{stem}_{what}"), array)

    def _add(self, op: str, stem: str, what: str, *inputs: ir.Value, **attributes: list[int]) -> ir.Value:
        name = self._names.new(f"{stem}_{what}")
        self._nodes.append(ir.node(op, list(inputs), attributes=attributes, name=name))
        made = self._nodes[-1].outputs[0]
        made.name, made.dtype = name, FLOAT32
        return made


def leave_rounding_to_engine(model: ir.Model) -> int:
    """Take out, in place, what `write_grouped` wrote around activations; gives the size of the groups, 0 where there are none."""
    graph, group = model.graph, 0
    for last in [node for node in graph if _MARK in node.metadata_props]:
        group = int(last.metadata_props[_MARK])
        ir.convenience.replace_all_uses_with(last.outputs[0], _source(last), replace_graph_outputs=True)
        _remove_unread(graph, last)
    drop_unused_weights(graph)
    return group


def _source(last: ir.Node) -> ir.Value:
    """What is rounded: the input of the Reshape in front of Div, Round, Mul and the `last` Reshape."""
    value = last.inputs[0]
    for _ in ("Mul", "Round", "Div", "Reshape"):
        maker = value.producer() if value is not None else None
        assert maker is not None, "written by write_grouped"
        value = maker.inputs[0]
    assert value is not None, "written by write_grouped"
    return value


def _remove_unread(graph: ir.Graph, node: ir.Node) -> None:
    """Remove `node`, and what was computed for it alone by nodes written with it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one.graph is not graph or any(v.uses() or v.is_graph_output() for v in one.outputs):
            continue
        makers = [v.producer() for v in one.inputs if v is not None]
        graph.remove(one, safe=True)
        waiting += [m for m in makers if m is not None]
