"""The products of a graph that was exported: what its engine is to compute each of them in."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from quant.graph.layers import LAYER_OPS
from quant.graph.model import constant
from quant.targets.nvidia.engine_host.kernels import Product

_MOVES = frozenset({"Cast", "Identity", "Reshape", "Transpose"})
"""Operators that may stand between a DequantizeLinear and the product that reads it."""
_CODES = {ir.DataType.INT8: "int8", ir.DataType.FLOAT8E4M3FN: "fp8", ir.DataType.INT4: "int4"}
_FLOATS = {ir.DataType.FLOAT: "fp32", ir.DataType.FLOAT16: "fp16", ir.DataType.BFLOAT16: "bf16"}


def products_of(model: ir.Model) -> dict[str, Product]:
    """Name -> product, of every node of `model` that may be one."""
    found = {}
    for node in model.graph:
        operands = [_before_moves(v) for v in node.inputs[:2] if v is not None]
        dequantizers = [m for m in (v.producer() for v in operands) if m is not None and m.op_type == "DequantizeLinear"]
        weighted = any(constant(v) is not None for v in (*operands, *(m.inputs[0] for m in dequantizers)))
        found[str(node.name)] = Product(str(node.name), weighted, frozenset(str(m.name) for m in dequantizers))
    return found


def _before_moves(value: ir.Value) -> ir.Value:
    """What `value` was before it was only moved or cast."""
    while (maker := value.producer()) is not None and maker.op_type in _MOVES and maker.inputs[0] is not None:
        value = maker.inputs[0]
    return value


def expected_precisions(model: ir.Model) -> list[dict[str, Any]]:
    """What the types in `model` ask of an engine, layer by layer: `layer`, `op`, `planned`, and what finds its kernel.

    Args:
        model: The graph as it is exported, with all types written into it.
    """
    products = products_of(model)
    rows = []
    for node in model.graph:
        if node.op_type in LAYER_OPS and any(constant(v) is None for v in node.inputs[:2]):
            product = products[str(node.name)]
            found = {"node": product.node, "weighted": product.weighted, "dequantizers": sorted(product.dequantizers)}
            rows.append({"layer": product.node, "op": node.op_type, "planned": _asked(node), **found})
    return rows


def _asked(node: ir.Node) -> str:
    """The format of a product whose operands are both codes of one type, or whose weight alone is INT4; else that of its floats."""
    operands = [v for v in node.inputs[:2] if v is not None]
    codes = [_codes_of(_before_moves(v)) for v in operands]
    if len(set(codes)) == 1 and codes[0] in {"int8", "fp8"}:
        return codes[0]
    if "int4" in codes:
        return "int4"
    return next((_FLOATS[v.dtype] for v in operands if v.dtype in _FLOATS), "fp32")


def _codes_of(value: ir.Value) -> str | None:
    """The format of the codes that `value` was made of; None when it was not made of codes."""
    maker = value.producer()
    if maker is None or maker.op_type != "DequantizeLinear":
        return None
    zero = maker.inputs[2] if len(maker.inputs) > 2 else None  # noqa: PLR2004 a zero point is the third input
    found = next((v.dtype for v in (maker.inputs[0], zero) if v is not None and v.dtype is not None), ir.DataType.INT8)
    return _CODES.get(found)
