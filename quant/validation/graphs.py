"""Two ONNX graphs that must be the same, compared node by node and weight by weight; each difference names the layer that it is in."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.model import signature
from quant.validation.findings import Finding

_MOST = 50
"""Findings that are told; a graph of another model differs in everything."""


def differences(expected: ir.Model, found: ir.Model, layers: Collection[str], *, file: str) -> list[Finding]:
    """All that differs in `found`, the first fifty.

    Args:
        expected: The graph as it must be.
        found: The graph in `file`.
        layers: Names of the layers, for places.
        file: Where `found` lies.
    """
    told: list[Finding] = []
    for finding in _differences(expected, found, Places(expected.graph, layers), Places(found.graph, layers), file):
        if len(told) == _MOST:
            told.append(Finding(kind="file", where=file, file=file, what=f"more than {_MOST} differences; the others are not shown"))
            break
        told.append(finding)
    return told


class Places:
    """Which layer a node or a weight of a graph belongs to: the next layer that it leads to, or else the last one before it.

    Args:
        graph: The graph.
        layers: Names of its layers.
    """

    def __init__(self, graph: ir.Graph, layers: Collection[str]) -> None:
        self._layers = set(layers)
        self.nodes = {_key(node): node for node in graph}
        self.weights = dict(graph.initializers)

    def of_node(self, node: ir.Node) -> str:
        """The layer of `node`; empty if there is none near it."""
        if node.name in self._layers:
            return str(node.name)
        return self._search(node, forward=True) or self._search(node, forward=False)

    def of_weight(self, value: ir.Value) -> str:
        """The layer that reads `value`."""
        return next((place for node, _ in value.uses() if (place := self.of_node(node))), "")

    def _search(self, start: ir.Node, *, forward: bool) -> str:
        seen, waiting = {start}, deque([start])
        while waiting:
            node = waiting.popleft()
            if node.name in self._layers:
                return str(node.name)
            for neighbour in node.successors() if forward else node.predecessors():
                if neighbour not in seen:
                    seen.add(neighbour)
                    waiting.append(neighbour)
        return ""


def _key(node: ir.Node) -> str:
    return str(node.name or (node.outputs[0].name if node.outputs else node.op_type))


def _differences(expected: ir.Model, found: ir.Model, before: Places, after: Places, file: str) -> Iterator[Finding]:
    yield from _of_model(expected, found, file)
    for name, node in before.nodes.items():
        place = before.of_node(node)
        if name not in after.nodes:
            yield _at(place, name, f"{node.op_type} {name!r} is missing", file)
        else:
            yield from (_at(place, name, what, file) for what in _of_node(node, after.nodes[name]))
    for name, node in after.nodes.items():
        if name not in before.nodes:
            yield _at(after.of_node(node), name, f"{node.op_type} {name!r} is not in what plan, table and FP32 model say", file)
    for name, value in before.weights.items():
        place = before.of_weight(value)
        if name not in after.weights:
            yield _at(place, name, "this weight is missing", file)
        else:
            yield from (_at(place, name, what, file) for what in _of_weight(value, after.weights[name]))
    for name, value in after.weights.items():
        if name not in before.weights:
            yield _at(after.of_weight(value), name, "a weight that is not in what plan, table and FP32 model say", file)


def _at(layer: str, tensor: str, what: str, file: str) -> Finding:
    return Finding(kind="layer" if layer else "tensor", where=layer or tensor, tensor=tensor, what=what, file=file)


def _of_model(expected: ir.Model, found: ir.Model, file: str) -> Iterator[Finding]:
    for domain in sorted({*expected.graph.opset_imports, *found.graph.opset_imports}):
        before, after = (model.graph.opset_imports.get(domain) for model in (expected, found))
        if before != after:
            yield Finding(kind="file", where=file, file=file, what=f"operator set {domain or 'ai.onnx'!r} is {after}, {before} was expected")
    if (expected.functions or found.functions) and _bytes(expected.functions) != _bytes(found.functions):
        yield Finding(kind="file", where=file, file=file, what="the model's functions differ")
    ends, there = signature(expected), signature(found)
    for noun, wanted, given in (("inputs", ends.inputs, there.inputs), ("outputs", ends.outputs, there.outputs)):
        if wanted != given:
            was, now = (", ".join(map(str, specs)) for specs in (wanted, given))
            yield Finding(kind="file", where=file, file=file, what=f"{noun} are ({now}), ({was}) was expected")


def _bytes(functions: Mapping[Any, ir.Function]) -> list[bytes]:
    return [ir.to_proto(functions[name]).SerializeToString(deterministic=True) for name in sorted(functions)]


def _of_node(expected: ir.Node, found: ir.Node) -> Iterator[str]:
    if expected.op_identifier() != found.op_identifier():
        yield f"is {_operator(found)}, {_operator(expected)} was expected"
    for noun, before, after in (("inputs", expected.inputs, found.inputs), ("outputs", expected.outputs, found.outputs)):
        was, now = ([v.name if v is not None else "" for v in values] for values in (before, after))
        if was != now:
            yield f"{noun} are {now}, {was} was expected"
    for name in sorted({*expected.attributes, *found.attributes}):
        was, now = (_attribute(node, name) for node in (expected, found))
        if was != now:
            yield f"{name} is {_short(now)}, {_short(was)} was expected"


def _operator(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _attribute(node: ir.Node, name: str) -> Any:
    if name not in node.attributes:
        return None
    attribute = node.attributes[name]
    plain = attribute.type in {ir.AttributeType.INT, ir.AttributeType.INTS, ir.AttributeType.FLOAT, ir.AttributeType.FLOATS, ir.AttributeType.STRING}
    return attribute.value if plain else ir.to_proto(attribute).SerializeToString(deterministic=True)


def _short(value: Any) -> str:
    return "missing" if value is None else f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


def _of_weight(expected: ir.Value, found: ir.Value) -> Iterator[str]:
    was, now = expected.const_value, found.const_value
    if was is None or now is None:
        if (was is None) != (now is None):
            yield "has no value" if now is None else "has a value, and should have none"
        return
    if was.dtype != now.dtype or list(was.shape) != list(now.shape):
        yield f"is {now.dtype.name} {list(now.shape)}, {was.dtype.name} {list(was.shape)} was expected"
    elif was.tobytes() != now.tobytes():
        yield _values(was.numpy(), now.numpy())


def _values(was: npt.NDArray[Any], now: npt.NDArray[Any]) -> str:
    """How many entries differ, and the first that does."""
    before, after = (np.asarray(array).astype(np.float64).reshape(-1) for array in (was, now))
    off = np.flatnonzero(~((before == after) | (np.isnan(before) & np.isnan(after))))
    if not len(off):
        return "differs in bits that are no values"
    first = int(off[0])
    all_zero = "; all are 0" if not np.any(after) else ""
    not_finite = int(np.sum(~np.isfinite(after) & np.isfinite(before)))
    broken = f"; {not_finite} not finite" if not_finite else ""
    return f"{len(off)} of {len(before)} values differ, the first is {after[first]:.9g} where {before[first]:.9g} was expected{all_zero}{broken}"
