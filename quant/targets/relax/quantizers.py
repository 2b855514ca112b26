"""Quantizers: ONNX -> Relax, and which tensors stand for codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from quant.targets.relax import functions
from quant.targets.relax.graph import Codes, Fusion, Graph, Weights, array, dtype_of, inputs_of, shape_of
from quant.targets.relax.tiles import LANES

_CODES = frozenset({"int8", "uint8"})


def quantize(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`QuantizeLinear` with one scale, known in advance, to INT8 or UINT8."""
    del name
    x, scale, zero = inputs[0], array(inputs[1]), array(inputs_of(inputs, 3)[2])
    zero = np.zeros((), np.uint8) if inputs_of(inputs, 3)[2] is None else zero
    if scale is None or zero is None or scale.size != 1 or str(zero.dtype) not in _CODES or attrs.get("block_size", 0):
        return None
    known = graph.codes.get(x)
    if known is not None and (known.scale, known.zero, dtype_of(known.values)) == (float(scale.item()), int(zero.item()), str(zero.dtype)):
        return known.values  # they were moved, not computed with
    step, offset = relax.const(np.float32(scale.item())), relax.const(np.float32(zero.item()))
    return graph.last.elementwise(x, lambda v: _codes(graph, v, step, offset, dtype=str(zero.dtype)))


def _codes(graph: Graph, x: Any, scale: Any, zero: Any, *, dtype: str) -> Any:
    limits = np.iinfo(dtype)
    x = graph.cast(x, "float32") if dtype_of(x) != "float32" else x
    low, high = int(limits.min), int(limits.max)
    return graph.call("codes", lambda v, s, z: functions.codes(v, s, z, dtype=dtype, low=low, high=high), Fusion.ELEMENT_BY_ELEMENT, x, scale, zero)


def dequantize(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`DequantizeLinear` with one scale, or of a constant; what it was before is remembered."""
    del name
    x, scale = inputs[0], array(inputs[1])
    given = inputs_of(inputs, 3)[2]
    zero = np.zeros((), np.uint8) if given is None else array(given)
    if scale is None or zero is None or attrs.get("block_size", 0) or scale.dtype != np.float32:
        return None
    constant = array(x)
    if constant is not None:
        weights = Weights(constant, scale, zero, None if scale.size == 1 else int(attrs.get("axis", 1)) % max(constant.ndim, 1))
        found = relax.const(weights.floats())
        graph.weights[found] = weights
        return found
    if scale.size != 1 or dtype_of(x) not in _CODES:
        return None

    def floats(codes: Any) -> Any:
        moved = graph.emit(relax.op.astype(codes, "float32"))
        if zero.item():
            moved = graph.emit(relax.op.subtract(moved, relax.const(np.float32(zero.item()))))
        return graph.emit(relax.op.multiply(moved, relax.const(np.float32(scale.item()))))

    found = graph.last.elementwise(x, floats)
    graph.codes[found] = Codes(x, float(scale.item()), int(zero.item()))
    return found


def dynamic_quantize(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`DynamicQuantizeLinear`: UINT8 codes, scale and zero point from the range that the input has, 0 included."""
    del name, attrs
    x, nothing = inputs[0], relax.const(np.float32(0))
    low, high = (_extreme(graph, x, largest=largest) for largest in (False, True))
    scale = graph.emit(relax.op.divide(graph.emit(relax.op.subtract(high, low)), relax.const(np.float32(255))))
    # A range without width has scale 0, and all its values are 0: any other scale gives the same codes.
    safe = graph.emit(relax.op.where(graph.emit(relax.op.greater(scale, nothing)), scale, relax.const(np.float32(1))))
    zero = _codes(graph, graph.emit(relax.op.negative(low)), safe, nothing, dtype="uint8")
    return relax.Tuple([_codes(graph, x, safe, graph.cast(zero, "float32"), dtype="uint8"), scale, zero])


def _extreme(graph: Graph, x: Any, *, largest: bool) -> Any:
    length = shape_of(x)[-1] if shape_of(x) else None
    if isinstance(length, int) and length % LANES == 0:
        return graph.call("extreme", lambda v: functions.extreme(v, largest=largest), Fusion.NOT_AT_ALL, x)
    nothing = relax.const(np.float32(0))
    if largest:
        return graph.emit(relax.op.maximum(graph.emit(relax.op.max(x)), nothing))
    return graph.emit(relax.op.minimum(graph.emit(relax.op.min(x)), nothing))
