"""Channels whose scale is free: tensors between layers through which a positive factor for each channel passes unchanged.

Between the layers that make such tensors and those that read them, channel c may be divided by any s_c > 0, which the rows of the
weights before and the columns of those behind make up for: f(x / s) s = f(x) for what keeps 0 and straight lines from it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.layers import Layer
from quant.graph.model import add_initializer, attribute, constant
from quant.graph.names import Names
from quant.graph.scaling import scalable, write_weight

Doubles = npt.NDArray[np.float64]
_HOMOGENEOUS = frozenset({"Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity", "Dropout", "Abs"})
"""Operators on each channel by itself (of axis 1, where there are spatial ones) with f(a x) = a f(x) for a > 0."""
_POOLS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
_BIAS = 2
_MATRIX = 2


@dataclass
class Free:
    """Tensors that share free scales of their channels.

    Args:
        before: Layers that make some of them.
        behind: Layers that read some of them.
        rows: (node, position) of constant rows that are added to some of them, along the last axis.
        pools: Whether windows of some of them are pooled.
    """

    before: list[Layer] = field(default_factory=list)
    behind: list[Layer] = field(default_factory=list)
    rows: list[tuple[ir.Node, int]] = field(default_factory=list)
    pools: bool = False

    @property
    def channels(self) -> int | None:
        """Number of channels; None when layers do not agree on it, or on where channels lie: convolutions have them on axis 1, others on the last."""
        layers = [*self.before, *self.behind]
        kinds = {layer.op == "Conv" for layer in layers}
        counts = {tops_before(layer).size for layer in self.before} | {tops_behind(layer).size for layer in self.behind}
        if len(kinds) != 1 or len(counts) != 1 or (self.rows if kinds == {True} else self.pools):
            return None
        return counts.pop()


def free_channels(layers: Collection[Layer]) -> list[Free]:
    """All sets of tensors with free channels between `layers`, each with at least one layer before it and one behind.

    Args:
        layers: All layers of a graph.
    """
    known = {id(layer.node): layer for layer in layers if _movable(layer)}
    seen: set[ir.Value] = set()
    found = []
    for layer in layers:
        start = layer.node.outputs[0]
        if id(layer.node) in known and start not in seen:
            free = _spread(start, known, seen)
            if free is not None and free.before and free.behind and free.channels is not None:
                found.append(free)
    return found


def _movable(layer: Layer) -> bool:
    """Whether the weight of `layer` can take factors at both ends, and its bias one."""
    node = layer.node
    bias = node.inputs[_BIAS] if len(node.inputs) > _BIAS else None
    if layer.weight != 1 or layer.channel_axis is None or not (layer.op == "Conv" or scalable(layer)):
        return False
    row, shape = constant(bias), layer.weight_shape
    outputs = 0 if shape is None else shape[layer.channel_axis]
    return bias is None or (row is not None and row.size == outputs and row.shape[-1] == outputs)


def _spread(start: ir.Value, known: dict[int, Layer], seen: set[ir.Value]) -> Free | None:
    """The tensors that share the channels of `start`; None when something makes or reads one of them that takes no factor."""
    free, waiting, fits = Free(), [start], True
    own: set[ir.Value] = set()
    while waiting:
        value = waiting.pop()
        if value in own:
            continue
        own.add(value)
        maker = value.producer()
        fits = fits and maker is not None and not value.is_graph_output()
        for node, position in [*value.uses(), *([(maker, -1)] if maker is not None else [])]:
            passed = _passed(node, position, known, free)
            fits = fits and passed is not None and node.graph is start.graph
            waiting += passed or []
    seen |= own
    return free if fits else None


def _passed(node: ir.Node, position: int, known: dict[int, Layer], free: Free) -> list[ir.Value] | None:
    """Further tensors with the same channels, by `node`, which makes one of them (`position` -1) or reads one; None if it takes no factor."""
    layer = known.get(id(node))
    if layer is not None:
        if position > 0:
            return None
        (free.before if position < 0 else free.behind).append(layer)
        return []
    outputs = [v for v in node.outputs if v.uses() or v.is_graph_output()]
    if len(outputs) != 1 or node.domain not in {"", "ai.onnx"}:
        return None
    if node.op_type in _HOMOGENEOUS:
        given = node.inputs[0]
        free.pools = free.pools or node.op_type in _POOLS
        return None if given is None or position > 0 else [given, *outputs]
    return _added(node, outputs, free) if node.op_type == "Add" else None


def _added(node: ir.Node, outputs: list[ir.Value], free: Free) -> list[ir.Value] | None:
    """Both sides of a sum of tensors with the same channels, or of a tensor and a row for its last axis."""
    sides = [v for v in node.inputs if v is not None]
    fixed = [i for i, v in enumerate(node.inputs) if constant(v) is not None]
    if not fixed:
        ends = {None if v.shape is None or len(v.shape) < _MATRIX else (len(v.shape), v.shape[1], v.shape[-1]) for v in (*sides, *outputs)}
        return [*sides, *outputs] if len(ends) == 1 and None not in ends else None
    row = constant(node.inputs[fixed[0]])
    value = node.inputs[1 - fixed[0]]
    if row is None or row.ndim != 1 or value is None or value.shape is None or value.shape[-1] != row.size:
        return None
    if (node, fixed[0]) not in free.rows:
        free.rows.append((node, fixed[0]))
    return [value, *outputs]


def tops_before(layer: Layer) -> Doubles:
    """Largest magnitude of the weights of each output channel."""
    weight = np.abs(_weight(layer))
    return np.asarray(weight.max(axis=tuple(i for i in range(weight.ndim) if i != _rows_axis(layer))), np.float64)


def tops_behind(layer: Layer) -> Doubles:
    """Largest magnitude of the weights that each input channel meets."""
    weight = np.abs(_weight(layer))
    if layer.op != "Conv":
        return np.asarray(weight.max(axis=_rows_axis(layer)), np.float64)
    groups = int(attribute(layer.node, "group", 1))
    grouped = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return np.asarray(grouped.max(axis=(1, 3)).reshape(-1), np.float64)


def _weight(layer: Layer) -> Doubles:
    weight = constant(layer.node.inputs[1])
    assert weight is not None, "a weight is constant"
    return np.asarray(weight, np.float64)


def _rows_axis(layer: Layer) -> int:
    assert layer.channel_axis is not None, "movable layers have output channels"
    return layer.channel_axis


def divide_channels(graph: ir.Graph, free: Free, scale: Doubles, names: Names) -> None:
    """Divide the channels of the tensors of `free` by `scale` `[channels]`: in what makes them, and back in what reads them."""
    for layer in free.before:
        weight = _weight(layer)
        write_weight(graph, layer, weight / _along(scale, weight.ndim, _rows_axis(layer)), names)
        if len(layer.node.inputs) > _BIAS and layer.node.inputs[_BIAS] is not None:
            _divide_constant(graph, layer.node, _BIAS, scale, names)
    for node, position in free.rows:
        _divide_constant(graph, node, position, scale, names)
    for layer in free.behind:
        write_weight(graph, layer, _weight(layer) * _for_inputs(layer, scale), names)


def _divide_constant(graph: ir.Graph, node: ir.Node, position: int, scale: Doubles, names: Names) -> None:
    row = constant(node.inputs[position])
    assert row is not None, "it was found to be constant"
    divided = (row.astype(np.float64).reshape(-1) / scale).reshape(row.shape).astype(np.float32)
    node.replace_input_with(position, add_initializer(graph, names.new(f"{node.name}_scaled"), divided))


def _along(scale: Doubles, rank: int, axis: int) -> Doubles:
    return scale.reshape([-1 if i == axis else 1 for i in range(rank)])


def _for_inputs(layer: Layer, scale: Doubles) -> Doubles:
    """`scale` of input channels, as it multiplies the weight."""
    weight = _weight(layer)
    if layer.op != "Conv":
        return _along(scale, _MATRIX, 1 - _rows_axis(layer))
    groups = int(attribute(layer.node, "group", 1))
    each = np.repeat(scale.reshape(groups, weight.shape[1]), weight.shape[0] // groups, axis=0)
    return each.reshape(*each.shape, *[1] * (weight.ndim - _MATRIX))
