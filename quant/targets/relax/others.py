"""Operators that are no layers: ONNX -> functions that TVM has only slower, or with less care."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, topi
from tvm.ir import is_prim_expr

from quant.targets.relax import functions
from quant.targets.relax.graph import Fusion, Graph, array, dtype_of, inputs_of, is_tensor, shape_of


def gather(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`Gather` by indices that are computed."""
    table, indices = inputs[0], inputs[1]
    if not (is_tensor(table) and is_tensor(indices)) or array(indices) is not None:
        return None
    axis = int(attrs.get("axis", 0)) % len(shape_of(table))
    return graph.call("lookup", lambda t, i: functions.lookup(t, i, axis=axis, layer=name), Fusion.NOT_AT_ALL, table, indices)


def clip(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`Clip` with constant bounds, in one step."""
    del name
    x, *bounds = inputs_of(inputs, 3)
    ends = [array(bound) for bound in bounds]
    if any(end is None and bound is not None for end, bound in zip(ends, bounds, strict=True)) or {"min", "max"} & set(attrs):
        return None
    low, high = (otherwise if end is None else float(end.item()) for end, otherwise in zip(ends, (-math.inf, math.inf), strict=True))
    return graph.last.elementwise(x, lambda v: graph.emit(relax.op.clip(v, low, high)))


def count(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`Range` up to a dynamic dimension: TVM's importer makes their number a length of its own, which then meets no other."""
    del name, attrs
    start, step, limit = array(inputs[0]), array(inputs[2]), inputs[1]
    if start is None or step is None or start.item() != 0 or step.item() != 1 or not is_prim_expr(limit):
        return None
    return graph.emit(relax.op.arange(0, limit, 1, str(start.dtype)))


def softmax(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`Softmax` along the last axis (before operator set 13 it went over all axes from one on: along the last as well, if that is the one)."""
    del name
    x = inputs[0]
    rank = len(shape_of(x))
    if dtype_of(x) != "float32" or int(attrs.get("axis", -1)) % rank != rank - 1:
        return None
    return graph.call("softmax", functions.softmax, Fusion.NOT_AT_ALL, x)


def erf(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`Erf`, within 5e-7."""
    del name, attrs
    if dtype_of(inputs[0]) != "float32":
        return None
    return graph.last.elementwise(inputs[0], lambda v: graph.call("erf", topi.fast_erf, Fusion.ELEMENT_BY_ELEMENT, v))


def gelu(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`Gelu`, not its approximation by a hyperbolic tangent."""
    del name
    if dtype_of(inputs[0]) != "float32" or attrs.get("approximate", b"none") != b"none":
        return None
    return graph.last.elementwise(inputs[0], lambda v: graph.call("gelu", functions.gelu, Fusion.ELEMENT_BY_ELEMENT, v))
