"""Casting a graph to FP16 (or BF16): everything that may, but for what would overflow; inputs and outputs stay as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.layers import FLOAT32
from quant.graph.model import add_initializer, constant, drop_unused_weights
from quant.graph.names import Names

FP16_MAX = 65504.0
STAND_IN_FOR_INFINITY = 1e8
"""Magnitudes from here on are masks (-1e9, -3.4e38), not measurements; no layer computes with them."""
MASK_VALUE = 3e4
"""What masks are clamped to: softmax sends it to an exact 0, and the sum of two masks still fits into FP16."""
SMALLEST = 2.0**-24
"""Smallest positive FP16 number."""

BF16_MAX = 3.3895313892515355e38

FLOAT16, BFLOAT16 = ir.DataType.FLOAT16, ir.DataType.BFLOAT16
_NAMES = {FLOAT16: "fp16", BFLOAT16: "bf16"}
_ONNX_NAMES = {FLOAT16: "tensor(float16)", BFLOAT16: "tensor(bfloat16)"}
_QUANTIZED = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"})


def keep_reasons(model: ir.Model, magnitudes: Mapping[str, float], *, limit: float, dtype: ir.DataType = FLOAT16) -> dict[ir.Node, str]:
    """Nodes that stay in FP32, each with the reason: no `dtype` in its definition, a nested graph, or values beyond `limit`."""
    keep: dict[ir.Node, str] = {}
    version = model.graph.opset_imports.get("", 0)
    for node in model.graph:
        large = [v for v in (*node.inputs, *node.outputs) if v is not None and limit < magnitudes.get(str(v.name), 0.0)]
        if large:
            worst = max(large, key=lambda v: magnitudes[str(v.name)])
            keep[node] = f"overflow: tensor {worst.name!r} reaches {magnitudes[str(worst.name)]:.4g}, FP16 ends at 65504"
        elif _nested(node):
            keep[node] = "holds a nested graph"
        elif not all(v is None or v.type is None or isinstance(v.type, ir.TensorType) for v in (*node.inputs, *node.outputs)):
            keep[node] = "takes or gives something else than a tensor"
        elif node.op_type in _QUANTIZED:
            keep[node] = "is quantized already"
        elif not _any_float(node) or not takes_fp16(node.domain, node.op_type, version, dtype):
            keep[node] = f"{node.op_type} has no {_NAMES[dtype].upper()} form"
        elif dtype == FLOAT16 and (weight := _large_weight(node)) is not None:
            keep[node] = f"overflow: weight {weight!r} has values beyond 65504"
    return keep


def _nested(node: ir.Node) -> bool:
    return any(a.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS} for a in node.attributes.values())


def _any_float(node: ir.Node) -> bool:
    return any(v is not None and v.dtype == FLOAT32 for v in node.inputs)


def _large_weight(node: ir.Node) -> str | None:
    for value in node.inputs:
        array = constant(value) if value is not None and value.dtype == FLOAT32 else None
        if array is not None and array.size:
            magnitudes = np.abs(array)
            if np.any((magnitudes > FP16_MAX) & (magnitudes < STAND_IN_FOR_INFINITY)):
                return str(value.name) if value is not None else None
    return None


@cache
def takes_fp16(domain: str, op: str, version: int, dtype: ir.DataType = FLOAT16) -> bool:
    """Whether every float input and output of `op` may be FP16 (or `dtype`) by its ONNX definition, its outputs following its inputs."""
    import onnx  # noqa: PLC0415 - heavy

    if domain not in {"", "ai.onnx"} or not onnx.defs.has(op, ""):
        return False
    schema = onnx.defs.get_schema(op, version, "")
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    for formal in (*schema.inputs, *schema.outputs):
        types = allowed.get(formal.type_str, {formal.type_str})
        if "tensor(float)" in types and _ONNX_NAMES[dtype] not in types:
            return False
    # Where an attribute says what comes out (Cast, RandomNormalLike), FP16 going in changes nothing there.
    followed = {formal.type_str for formal in schema.inputs}
    return all(formal.type_str in followed for formal in schema.outputs if "tensor(float)" in allowed.get(formal.type_str, set()))


def write_fp16(model: ir.Model, *, keep: Collection[ir.Node], dtype: ir.DataType = FLOAT16) -> None:
    """Cast `model` to FP16 (or `dtype`) in place, but for the nodes in `keep`; graph inputs and outputs keep their types."""
    graph = model.graph
    halves: dict[ir.Value, ir.Value] = {}
    names = Names(graph)
    kept = set(keep)
    for node in list(graph):
        if node in kept:
            continue
        for position, value in enumerate(node.inputs):
            if value is not None and value.dtype == FLOAT32:
                node.replace_input_with(position, halves.get(value) or _half(graph, node, value, halves=halves, names=names, dtype=dtype))
        for value in node.outputs:
            if value.dtype == FLOAT32:
                _restore(graph, node, value, halves=halves, names=names, dtype=dtype)
    _drop_unused(graph)


def _drop_unused(graph: ir.Graph) -> None:
    """Remove casts and weights that nobody reads any more."""
    for node in reversed(list(graph)):
        if node.op_type == "Cast" and not any(v.uses() or v.is_graph_output() for v in node.outputs):
            graph.remove(node, safe=True)
    drop_unused_weights(graph)


def _half(graph: ir.Graph, node: ir.Node, value: ir.Value, *, halves: dict[ir.Value, ir.Value], names: Names, dtype: ir.DataType) -> ir.Value:
    """`value` in half the bytes: a weight is converted (masks clamped), anything else is cast where it is first needed."""
    suffix = _NAMES[dtype]
    array = constant(value)
    if array is not None:
        halves[value] = add_initializer(graph, names.new(f"{value.name}_{suffix}"), to_half(array) if dtype == FLOAT16 else to_bf16(array))
        return halves[value]
    producer = value.producer()
    cast = ir.node("Cast", [value], attributes={"to": int(dtype)}, name=names.new(f"{value.name}_to_{suffix}"))
    cast.outputs[0].name, cast.outputs[0].dtype, cast.outputs[0].shape = names.new(f"{value.name}_{suffix}"), dtype, value.shape
    if producer is None:
        graph.insert_before(node, cast)
    else:
        graph.insert_after(producer, cast)
    halves[value] = cast.outputs[0]
    return halves[value]


def to_half(array: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float16]:
    """Constants in FP16: masks are clamped, and what is too small to be told from 0 stays above it (it keeps a division from one by 0).

    Example:
        >>> to_half(np.float32([-3.4e38, 1e-12, 0.5])).tolist()
        [-30000.0, 5.960464477539063e-08, 0.5]
    """
    magnitude = np.abs(array)
    clamped = np.where(magnitude >= STAND_IN_FOR_INFINITY, MASK_VALUE, np.where(magnitude > 0, np.maximum(magnitude, SMALLEST), magnitude))
    half: npt.NDArray[np.float16] = np.copysign(clamped, array).astype(np.float16)
    return half


def to_bf16(array: npt.NDArray[np.floating[Any]]) -> npt.NDArray[Any]:
    """Constants in BF16, as far as its largest finite number.

    Example:
        >>> to_bf16(np.float32([-3.4028235e38, 0.5, 1.001])).astype(float).tolist()
        [-3.3895313892515355e+38, 0.5, 1.0]
    """
    narrow: npt.NDArray[Any] = np.clip(array, -BF16_MAX, BF16_MAX).astype(BFLOAT16.numpy())
    return narrow


def _restore(graph: ir.Graph, node: ir.Node, value: ir.Value, *, halves: dict[ir.Value, ir.Value], names: Names, dtype: ir.DataType) -> None:
    """Let `node` give half the bytes, and give back FP32 under the old name to whoever still reads that."""
    cast = ir.node("Cast", [value], attributes={"to": int(FLOAT32)}, name=names.new(f"{value.name}_to_fp32"))
    back = cast.outputs[0]
    back.dtype, back.shape = FLOAT32, value.shape
    ir.convenience.replace_all_uses_with(value, back, replace_graph_outputs=True)
    cast.replace_input_with(0, value)
    given = str(value.name)
    value.name, value.dtype = names.new(f"{given}_{_NAMES[dtype]}"), dtype
    back.name = given
    graph.insert_after(node, cast)
    halves[back] = value
