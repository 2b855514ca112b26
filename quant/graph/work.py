"""What one run asks of a model: products, weights and activations of each layer, and the tensors at which formats may change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.costs import Crossing, LayerWork, ModelWork
from quant.core.dialect import Dialect
from quant.graph.importing.types import infer_types
from quant.graph.layers import FLOAT32, LAYER_OPS, Layer, find_layers
from quant.graph.model import attribute, constant, model_digest, read_model
from quant.graph.names import Names
from quant.graph.runtime import Runtime
from quant.graph.together import MOVING

_BOUNDING = frozenset({"Relu", "Clip"})
Shapes = Mapping[str, tuple[int, ...]]


def model_work(path: Path, feed: Mapping[str, npt.NDArray[Any]], *, dialect: Dialect | None = None, samples: int = 1) -> ModelWork:
    """What a run of the FP32 model in `path` on `feed` asks of its layers.

    The model is run once, and asked for the shapes of its tensors alone.

    Args:
        path: The model.
        feed: One request.
        dialect: The form that the target wants, which says what runs on codes; None: what moves and bounds values does.
        samples: Samples in the request.

    Raises:
        ModelError: The model cannot be run on `feed`.
    """
    model = read_model(path)
    layers = find_layers(model)
    shapes = _shapes_seen(path, feed, layers, Flow(model, layers, dialect).roots)
    flow = Flow(model, layers, dialect)
    weights = sum(int(v.const_value.size) for v in model.graph.initializers.values() if v.const_value is not None and v.const_value.dtype == FLOAT32)
    own = {id(layer.node.inputs[layer.weight]): layer.parameters for layer in layers if layer.weight is not None}
    return ModelWork(
        model=model_digest(path),
        samples=samples,
        layers=tuple(_work(layer, shapes) for layer in layers),
        crossings=flow.crossings(shapes),
        other_weights=max(weights - sum(own.values()), 0),
    )


def _shapes_seen(path: Path, feed: Mapping[str, npt.NDArray[Any]], layers: Sequence[Layer], more: Iterable[str]) -> Shapes:
    """Tensor -> shape, of what layers read and make and of `more`, in one run."""
    model = read_model(path)
    infer_types(model)
    graph, names = model.graph, Names(model.graph)
    inputs = {str(v.name): tuple(np.shape(feed[str(v.name)])) for v in graph.inputs if str(v.name) in feed}
    values = {str(v.name): v for node in graph for v in node.outputs}
    touched = [v for layer in layers for v in (*layer.node.inputs[:2], layer.node.outputs[0]) if v is not None and constant(v) is None]
    wanted = dict.fromkeys(name for name in (*(str(v.name) for v in touched), *more) if name not in inputs)
    probes: dict[str, str] = {}
    for name in wanted:
        node = ir.node("Shape", [values[name]])
        made = node.outputs[0]
        made.name, made.dtype = names.new(f"shape_of_{name}"), ir.DataType.INT64
        graph.append(node)
        graph.outputs.append(made)
        probes[made.name] = name
    found = Runtime(model, folder=path.parent, optimize=False).run(feed, list(probes))
    return inputs | {name: tuple(map(int, found[probe])) for probe, name in probes.items()}


def _work(layer: Layer, shapes: Shapes) -> LayerWork:
    written = math.prod(shapes[str(layer.node.outputs[0].name)])
    read = sum(math.prod(shapes[str(v.name)]) for position in layer.activations if (v := layer.node.inputs[position]) is not None)
    return LayerWork(layer=layer.name, op=layer.op, products=_products(layer, shapes, written), weights=layer.parameters, read=read or written, written=written)


def _products(layer: Layer, shapes: Shapes, written: int) -> int:
    """Multiplications of one run: for each element that is made, as many as are summed."""
    if layer.op not in LAYER_OPS:
        return 0
    left, right = (_shape(layer.node.inputs[i], shapes) for i in (0, 1))
    if layer.op == "Conv":
        return written * math.prod(right[1:])
    if layer.op == "ConvTranspose":
        return math.prod(left) * math.prod(right[1:])
    summed = left[0] if layer.op == "Gemm" and attribute(layer.node, "transA", 0) else left[-1]
    return written * summed


def _shape(value: ir.Value | None, shapes: Shapes) -> tuple[int, ...]:
    array = constant(value)
    assert value is not None, "a layer has two operands"
    return shapes[str(value.name)] if array is None else tuple(array.shape)


class Flow:
    """Where tensors come from and where they go, past what runs on codes as well as on floats.

    Args:
        model: The graph.
        layers: Its layers.
        dialect: What the target runs on codes; None: what moves and bounds values.
    """

    def __init__(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect | None) -> None:
        self._graph = model.graph
        self._layers = {id(layer.node): layer for layer in layers if layer.op in LAYER_OPS}
        self._moving = MOVING | (_BOUNDING if dialect is None else dialect.transparent | dialect.melting)
        self._chained = frozenset() if dialect is None else dialect.chained - LAYER_OPS
        self._order = {id(node): number for number, node in enumerate(model.graph)}
        self._makers: dict[int, Layer | None] = {}

    def root(self, value: ir.Value) -> ir.Value:
        """The tensor that `value` is, before it was moved or bounded."""
        node = value.producer()
        while node is not None and node.op_type in self._moving and id(node) not in self._layers and node.inputs[0] is not None:
            value = node.inputs[0]
            node = value.producer()
        return value

    def maker(self, root: ir.Value) -> Layer | None:
        """The layer that makes `root`, or the last one of those that are added up or concatenated to it on codes."""
        if id(root) not in self._makers:
            self._makers[id(root)] = None  # no way leads round in a circle, but for what is asked twice
            node = root.producer()
            if node is not None and id(node) in self._layers:
                self._makers[id(root)] = self._layers[id(node)]
            elif node is not None and node.op_type in self._chained:
                found = [made for v in node.inputs if v is not None and constant(v) is None and (made := self.maker(self.root(v))) is not None]
                self._makers[id(root)] = max(found, key=lambda layer: self._order[id(layer.node)], default=None)
        return self._makers[id(root)]

    @property
    def roots(self) -> tuple[str, ...]:
        """Names of the tensors at which formats may change."""
        return tuple(str(root.name) for root, _names, _readers, _open in self._found())

    def crossings(self, shapes: Shapes) -> tuple[Crossing, ...]:
        """The tensors at which formats may change, in graph order."""
        return tuple(
            Crossing(
                tensor=str(root.name),
                maker=None if (made := self.maker(root)) is None else made.name,
                readers=tuple(dict.fromkeys(readers)),
                open=is_open,
                elements=math.prod(shapes[str(root.name)]),
                also=tuple(dict.fromkeys(names)),
            )
            for root, names, readers, is_open in self._found()
        )

    def _found(self) -> list[tuple[ir.Value, list[str], list[str], bool]]:
        """(root, other names, layers that read it, whether others do) of every tensor that a layer makes or reads."""
        roots: dict[int, ir.Value] = {}
        names: dict[int, list[str]] = {}
        readers: dict[int, list[str]] = {}
        is_open: set[int] = set()
        for value, node, position in self._reads():
            root = self.root(value)
            key = id(root)
            roots.setdefault(key, root)
            if value is not root:
                names.setdefault(key, []).append(str(value.name))
            layer = None if node is None else self._layers.get(id(node))
            if layer is not None and position in layer.activations:
                readers.setdefault(key, []).append(layer.name)
            elif node is None or node.op_type not in self._moving | self._chained:
                is_open.add(key)
        kept = [key for key, root in roots.items() if key in readers or (key in is_open and self.maker(root) is not None)]
        return [(roots[key], names.get(key, []), readers.get(key, []), key in is_open) for key in kept]

    def _reads(self) -> Iterable[tuple[ir.Value, ir.Node | None, int]]:
        """(float tensor that is computed, the node that reads it, at which input); None for what the graph gives out."""
        for node in self._graph:
            for position, value in enumerate(node.inputs):
                if value is not None and value.dtype in {None, FLOAT32} and constant(value) is None:
                    yield value, node, position
        for value in self._graph.outputs:
            if value.dtype in {None, FLOAT32}:
                yield value, None, 0
