"""The graphs in which one layer is in a format, wholly or in part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import onnx_ir as ir

from quant.core.sensitivity import Effect, Part
from quant.graph.behind import name_of
from quant.graph.changes import with_float_weights, without_rounding_of_activations
from quant.graph.layers import layer_of
from quant.graph.model import constant

if TYPE_CHECKING:
    from quant.sensitivity import Subject

PARTS: tuple[Part, ...] = ("both", "weight", "activation")
_ROUNDING = frozenset({"QuantizeLinear", "DequantizeLinear", "Clip", "Reshape", "Add", "Identity"})
_WEIGHTS_ONLY = frozenset({"MatMulNBits", "GatherBlockQuantized"})


def part_graphs(subject: Subject, number_format: str, layer: str, *, parts: bool) -> Iterator[tuple[Part, ir.Model]]:
    """(part, graph) with `layer` in a format: always `both`, and the parts if they are wanted, can be told apart, and are not the same as both."""
    written = subject.write(number_format, [layer])
    split = parts and layer_of(_node(subject.model, layer)) is not None and _separable(subject.model, written, layer)
    alone = written.clone() if split else None
    yield "both", written
    if alone is None:
        return
    floats = alone.clone()
    if without_rounding_of_activations(subject.model, alone):
        yield "weight", alone
        if with_float_weights(subject.model, floats, layer):
            yield "activation", floats


def filled_up(subject: Subject, found: dict[Part, Effect], written: ir.Model) -> list[Effect]:
    """The effects of a layer with those parts added that need no measurement: of a part that is not rounded, or of the only one that is."""
    both = found["both"]
    layer = layer_of(_node(subject.model, both.layer))
    if layer is None or len(found) == len(PARTS) or not _separable(subject.model, written, both.layer):
        return list(found.values())
    nothing = {"value": 0.0, "standard_error": 0.0}
    if layer.weight is None:
        rest = {"weight": nothing, "activation": {}}
    elif not _rounds_activations(subject.model, written):
        rest = {"weight": {}, "activation": nothing}
    else:
        return list(found.values())
    return [both, *(both.model_copy(update={"part": part, **change}) for part, change in rest.items())]


def _node(model: ir.Model, name: str) -> ir.Node:
    return next(node for node in model.graph if name_of(node) == name)


def _new_nodes(before: ir.Model, after: ir.Model) -> list[ir.Node]:
    """Nodes of `after` that compute and that `before` does not have."""
    known = {name_of(node) for node in before.graph}
    fixed: set[ir.Value] = set()
    found = []
    for node in after.graph:
        if node.inputs and all(v is None or v in fixed or constant(v) is not None for v in node.inputs):
            fixed.update(node.outputs)
        elif name_of(node) not in known:
            found.append(node)
    return found


def _rounds_activations(before: ir.Model, after: ir.Model) -> bool:
    return any(node.op_type in {"QuantizeLinear", "DequantizeLinear"} for node in _new_nodes(before, after))


def _separable(before: ir.Model, after: ir.Model, layer: str) -> bool:
    """Whether rounding of weights and of activations stand apart in `after`: codes behind DequantizeLinear, Q/DQ on the way."""
    node = next((n for n in after.graph if name_of(n) == layer), None)
    was = _node(before, layer)
    if node is None or not (node.op_type in {was.op_type, "Gemm", "MatMul"} or node.op_type in _WEIGHTS_ONLY):
        return False
    return all(new.op_type in _ROUNDING for new in _new_nodes(before, after))
