"""What a plan changed in a graph: what was added to a weight, and what is rounded on the way to whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.behind import name_of
from quant.graph.layers import FLOAT32, Layer, layer_of
from quant.graph.model import add_initializer, attribute, constant
from quant.graph.names import Names

_BIAS = 2
_SAME_PLACES = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Gather"})


class Unreadable(Exception):  # noqa: N818 - a statement about a graph, caught by whoever asks; no mistake of a user
    """A change that is not made of codes of weights and of roundings on the way; says which."""


@dataclass(frozen=True)
class Edge:
    """A tensor that is rounded on the way to a reader.

    Args:
        tensor: Name of the tensor, in the graph as it was.
        reader: What the node that reads it rounded goes by; None: everybody, and who is given it.
        kind: Type of the values that the first step is given, where the node that makes them gives others than float32; else None.
        steps: The nodes that round it, in order; all they read besides is constant.
    """

    tensor: str
    reader: str | None
    kind: ir.DataType | None
    steps: tuple[ir.Node, ...]


@dataclass(frozen=True)
class Rewritten:
    """What became of one layer.

    Args:
        layer: The layer, in the graph as it was.
        weight: What was added to its weight, float32, in the shape that it had; None where it has none.
        bias: What was added to each output channel, float64 `[out]`; None where nothing was.
        edges: What is rounded on the way to it, and behind it.
    """

    layer: Layer
    weight: npt.NDArray[np.float32] | None
    bias: npt.NDArray[np.float64] | None
    edges: tuple[Edge, ...]


def read_change(before: ir.Model, after: ir.Model, layer: str) -> Rewritten:
    """What `after`, in which a plan was written for `layer` alone, does otherwise than `before`.

    Raises:
        Unreadable: It does something else than to round.
    """
    return _Reading(before, after, layer).result()


class _Reading:
    def __init__(self, before: ir.Model, after: ir.Model, layer: str) -> None:
        self._before, self._after = before, after
        self._old = {name_of(node): node for node in before.graph}
        self._new = {name_of(node): node for node in after.graph}
        found = layer_of(self._old[layer])
        assert found is not None, "a layer is asked for"
        self._layer = found
        self._name = layer
        now = self._new.get(layer)
        if now is None or now.op_type not in _SAME_PLACES or now.domain not in {"", "ai.onnx"}:
            raise Unreadable(f"{layer!r} became {'another node' if now is None else now.op_type}")
        self._now = now

    def result(self) -> Rewritten:
        found: dict[tuple[str, ir.Value], list[tuple[str | None, Edge]]] = {}
        for reader, position, was, now in self._reads():
            traced = self._trace(now)
            if traced is None:
                if _is_fixed(was) and was.name == now.name:
                    continue
                if reader == self._name and position in {self._layer.weight, _BIAS}:
                    continue
                raise Unreadable(f"{reader or 'the output'!r} reads a constant instead of {was.name!r}")
            tensor, kind, steps = traced
            if tensor != was.name:
                raise Unreadable(f"{reader or 'the output'!r} reads {tensor!r} instead of {was.name!r}")
            if steps or kind is not None:
                found.setdefault((tensor, now), []).append((reader, Edge(tensor, reader, kind, steps)))
        edges = [edge for (tensor, _), readers in found.items() for edge in self._joined(tensor, readers)]
        return Rewritten(self._layer, self._weight(), self._bias(), tuple(edges))

    def _reads(self) -> Iterator[tuple[str | None, int, ir.Value, ir.Value]]:
        """(reader, position, value as it was, value now) of everything that is read, the graph's outputs (reader None) last."""
        for name, old in self._old.items():
            new = self._new.get(name)
            if new is None:
                if not self._was_merged(old):
                    raise Unreadable(f"{name!r} is gone")
                continue
            for position, (was, now) in enumerate(zip(old.inputs, new.inputs, strict=False)):
                if was is not None and now is not None and (was.name != now.name or self._is_new(now.producer())):
                    yield name, position, was, now
        for position, (was, now) in enumerate(zip(self._before.graph.outputs, self._after.graph.outputs, strict=True)):
            yield None, position, was, now

    def _is_new(self, node: ir.Node | None) -> bool:
        return node is not None and name_of(node) not in self._old

    def _was_merged(self, node: ir.Node) -> bool:
        """Whether `node` is the Add that became part of the layer, now a Gemm."""
        return node is self._merged()

    def _merged(self) -> ir.Node | None:
        readers = [reader for reader, _ in self._layer.node.outputs[0].uses()]
        merged = self._layer.op == "MatMul" and self._now.op_type == "Gemm" and len(readers) == 1 and readers[0].op_type == "Add"
        return readers[0] if merged else None

    def _trace(self, value: ir.Value) -> tuple[str, ir.DataType | None, tuple[ir.Node, ...]] | None:
        """(tensor as it was called, its type now if that is another, the new nodes behind it); None for a constant."""
        steps: list[ir.Node] = []
        while self._is_new(maker := value.producer()):
            assert maker is not None
            computed = [v for v in maker.inputs if v is not None and not _is_fixed(v)]
            if not computed:
                return None
            if len(computed) > 1 or len(maker.outputs) > 1:
                raise Unreadable(f"{value.name!r} is made by a {maker.op_type} of {len(computed)} tensors")
            if not self._adds_own_bias(maker, computed[0]):
                steps.insert(0, maker)
            value = computed[0]
        if _is_fixed(value):
            return None
        name, was = str(value.name), FLOAT32
        if maker is not None:
            old = self._old[name_of(maker)]
            own = (self._merged() or old).outputs[0] if maker is self._now else old.outputs[maker.outputs.index(value)]
            name, was = str(own.name), own.dtype or FLOAT32
        return name, value.dtype if value.dtype is not None and value.dtype != was else None, tuple(steps)

    def _adds_own_bias(self, node: ir.Node, value: ir.Value) -> bool:
        """Whether `node` adds the bias of the layer, a Gemm that became a MatMul."""
        return node.op_type == "Add" and value.producer() is self._now and (self._layer.op, self._now.op_type) == ("Gemm", "MatMul")

    def _joined(self, tensor: str, readers: list[tuple[str | None, Edge]]) -> list[Edge]:
        """One edge for everybody, where everybody reads the same; else one for each reader."""
        value = next((v for n in self._before.graph for v in n.outputs if v.name == tensor), None) or next(
            v for v in self._before.graph.inputs if v.name == tensor
        )
        everybody: set[str | None] = {name_of(node) for node, _ in value.uses()}
        everybody |= {None} if value.is_graph_output() else set()
        edge = readers[0][1]
        if {reader for reader, _ in readers} == everybody:
            return [Edge(tensor, None, edge.kind, edge.steps)]
        if any(reader is None for reader, _ in readers):
            raise Unreadable(f"{tensor!r} is given out rounded, but not read so by all")
        return list(dict(readers).values())

    def _weight(self) -> npt.NDArray[np.float32] | None:
        position = self._layer.weight
        if position is None:
            return None
        was, now = constant(self._layer.node.inputs[position]), _folded(self._now.inputs[position])
        factor = float(attribute(self._layer.node, "alpha", 1.0)) if self._layer.op == "Gemm" else 1.0
        left = float(attribute(self._now, "alpha", 1.0)) if self._now.op_type == "Gemm" else 1.0
        assert was is not None, "a weight is constant"
        if self._layer.op == "Gemm" and self._now.op_type == "MatMul" and attribute(self._layer.node, "transB", 0):
            now = now.T
        if now.shape != was.shape:
            raise Unreadable(f"the weight of {self._name!r} is {list(now.shape)} instead of {list(was.shape)}")
        return ((now.astype(np.float64) * left - was.astype(np.float64) * factor) / factor).astype(np.float32)

    def _bias(self) -> npt.NDArray[np.float64] | None:
        """What was added to the bias; a bias that was computed stays as it was."""
        if self._now.op_type not in {"Conv", "ConvTranspose", "Gemm"}:
            return None
        now = self._now.inputs[_BIAS] if len(self._now.inputs) > _BIAS else None
        if now is None or not _is_fixed(now):
            return None
        node = self._layer.node
        old = node.inputs[_BIAS] if len(node.inputs) > _BIAS else None
        merged = self._merged()
        was: Any = 0.0
        if merged is not None:
            was = next(constant(v) for v in merged.inputs if v is not node.outputs[0])
        elif old is not None:
            was = constant(old)
            was = was if was is None or self._layer.op != "Gemm" else was * float(attribute(node, "beta", 1.0))
        if was is None:
            raise Unreadable(f"the bias of {self._name!r}, which was computed, is constant")
        found = _folded(now).astype(np.float64) * (float(attribute(self._now, "beta", 1.0)) if self._now.op_type == "Gemm" else 1.0)
        shift = found - np.asarray(was, np.float64)
        if not np.any(shift):
            return None
        if shift.size != shift.shape[-1]:
            raise Unreadable(f"the bias of {self._name!r} is not one number for each output channel")
        return shift.reshape(-1)


def _is_fixed(value: ir.Value) -> bool:
    """Whether `value` depends on no input of the graph."""
    if value.is_graph_input():
        return False
    maker = value.producer()
    return maker is None or maker.op_type == "Constant" or (all(v is None or _is_fixed(v) for v in maker.inputs) and bool(maker.inputs))


def _folded(value: ir.Value | None) -> npt.NDArray[Any]:
    """What a constant that is written as codes, or cast, stands for."""
    found = constant(value)
    if found is not None:
        return found
    maker = value.producer() if value is not None else None
    assert maker is not None, "it is constant"
    if maker.op_type == "DequantizeLinear":
        codes, scale, zero = (_folded(v) if v is not None else None for v in [*maker.inputs, None][:3])
        assert codes is not None and scale is not None  # noqa: PT018 - for mypy
        axis, block = int(attribute(maker, "axis", 1)), int(attribute(maker, "block_size", 0))
        wide = codes.astype(np.float64)
        wide = wide if zero is None else wide - _along(zero, codes.shape, axis, block)
        return (wide * _along(scale, codes.shape, axis, block)).astype(np.float32)
    if maker.op_type == "Cast":
        return _folded(maker.inputs[0]).astype(ir.DataType(int(attribute(maker, "to", 1))).numpy())
    raise Unreadable(f"a weight is made by {maker.op_type}")


def _along(params: npt.NDArray[Any], shape: tuple[int, ...], axis: int, block: int) -> npt.NDArray[np.float64]:
    wide = params.astype(np.float64)
    if block:
        return np.take(np.repeat(wide, block, axis=axis), range(shape[axis]), axis=axis)
    return wide.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))]) if wide.ndim else wide


def without_rounding_of_activations(before: ir.Model, after: ir.Model) -> bool:
    """Let everybody in `after` read activations as they were; gives whether anything was rounded by Q/DQ."""
    known = {name_of(node) for node in before.graph}
    found = False
    for node in list(after.graph):
        if node.op_type != "DequantizeLinear" or name_of(node) in known:
            continue
        source = node.inputs[0]
        while source is not None and (maker := source.producer()) is not None and maker.op_type in {"QuantizeLinear", "Clip"} and name_of(maker) not in known:
            source = maker.inputs[0]
        if source is None or _is_fixed(source):
            continue
        _read_instead(after.graph, node.outputs[0], source)
        found = True
    return found


def _read_instead(graph: ir.Graph, value: ir.Value, source: ir.Value) -> None:
    """Let everybody read `source` instead of `value`, and give it out under the name of `value`."""
    for position, output in enumerate(graph.outputs):
        if output is value:
            name = str(value.name)
            value.name, source.name = f"{name}_rounded", name
            graph.outputs[position] = source
    ir.convenience.replace_all_uses_with(value, source)


def with_float_weights(before: ir.Model, after: ir.Model, layer: str) -> bool:
    """Give `layer` of `after` the weight and the bias that it had; gives whether that could be done."""
    old = next(node for node in before.graph if name_of(node) == layer)
    new = next((node for node in after.graph if name_of(node) == layer), None)
    found = layer_of(old)
    assert found is not None, "a layer is asked for"
    if new is None or new.op_type not in {old.op_type, "Gemm"} or found.weight is None or new.inputs[found.weight] is None:
        return False
    weight, names = constant(old.inputs[found.weight]), Names(after.graph)
    assert weight is not None, "a weight is constant"
    if new.op_type == "Gemm" and old.op_type == "Gemm":
        weight = weight * np.float32(attribute(old, "alpha", 1.0) / attribute(new, "alpha", 1.0))
    new.replace_input_with(found.weight, add_initializer(after.graph, names.new(f"{layer}_weight_float"), weight))
    shift = read_change_of_bias(before, after, layer)
    if shift is not None:
        factor = float(attribute(new, "beta", 1.0)) if new.op_type == "Gemm" else 1.0
        bias = _folded(new.inputs[_BIAS]).astype(np.float64).reshape(-1)
        new.replace_input_with(_BIAS, add_initializer(after.graph, names.new(f"{layer}_bias_float"), (bias - shift / factor).astype(np.float32)))
    return True


def read_change_of_bias(before: ir.Model, after: ir.Model, layer: str) -> npt.NDArray[np.float64] | None:
    """What was added to the bias of `layer`; None where nothing was."""
    return _Reading(before, after, layer)._bias()  # noqa: SLF001 - of this file
