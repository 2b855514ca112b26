"""Layers as matrices `[out, in]` whose rows are cut into blocks: along what a product sums over, or along the rows of a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Int4Form
from quant.graph.layers import TABLE_OP, Layer
from quant.graph.model import attribute, constant

Doubles = npt.NDArray[np.float64]
_BIAS, _MATRIX = 2, 2
LEAST_TABLE = 1 << 14
"""Values in the smallest table that is worth reading from codes."""


def int4_obstacle(layer: Layer, form: Int4Form | None, *, block_size: int | None, embeddings: bool) -> str | None:
    """Why the weight of `layer` cannot be written in 4 bits for a target; None when it can."""
    if form is None:
        return "the target reads no weights of 4 bits"
    if layer.op not in {"MatMul", "Gemm", TABLE_OP}:
        return f"{layer.op} has no form with a weight of 4 bits"
    reason = _table_obstacle(layer, form, embeddings=embeddings) if layer.op == TABLE_OP else _product_obstacle(layer)
    if reason is None and layer.op != TABLE_OP:
        reason = outputs_obstacle(layer, form.least_outputs)
    if reason is not None:
        return reason
    found = block_size_of(layer, form, block_size)
    return found if isinstance(found, str) else None


def block_size_of(layer: Layer, form: Int4Form, asked: int | None) -> int | str:
    """The block size for the weight of `layer`, or why there is none; rows of a table are never filled up, and one block is enough for them."""
    return size_of_blocks(matrix_shape(layer)[1], replace(form, pads=False, least_blocks=1) if layer.op == TABLE_OP else form, asked)


def outputs_obstacle(layer: Layer, least: int) -> str | None:
    """Why a product with a matrix is too narrow for kernels that take `least` outputs and more; None when it is not."""
    outputs = matrix_shape(layer)[0]
    return f"the target has such kernels from {least} outputs on, and it has {outputs}" if outputs < least else None


def _product_obstacle(layer: Layer) -> str | None:
    shape = layer.weight_shape
    if shape is None:
        return "a product of two activations has no weight"
    if layer.weight == 0:
        return "the weight is the left operand"
    if len(shape) != _MATRIX:
        return f"the weight has {len(shape)} axes, blocks want 2"
    if layer.op == "Gemm" and attribute(layer.node, "transA", 0):
        return "its input is transposed (transA)"
    if layer.op == "Gemm" and _scaled_bias(layer.node):
        return "its bias is computed, and scaled (beta)"
    return None


def _table_obstacle(layer: Layer, form: Int4Form, *, embeddings: bool) -> str | None:
    if not embeddings:
        return "tables are left out (`embeddings: false`)"
    if form.tables is None:
        return "the target reads no tables of 4 bits"
    return f"the table has only {layer.parameters:,} values" if layer.parameters < LEAST_TABLE else None


def _scaled_bias(node: ir.Node) -> bool:
    bias = node.inputs[_BIAS] if len(node.inputs) > _BIAS else None
    return bias is not None and constant(bias) is None and attribute(node, "beta", 1.0) != 1.0


def size_of_blocks(columns: int, form: Int4Form, asked: int | None) -> int | str:
    """The block size for rows of `columns` values, or why there is none.

    Example:
        >>> form = Int4Form(products="dequantize", tables=None, sizes=(128, 64), pads=False, asymmetric=False)
        >>> size_of_blocks(384, form, None), size_of_blocks(576, form, None)
        (128, 64)
        >>> size_of_blocks(576, form, 128)
        'blocks of 128 do not divide its rows of 576'
    """
    if asked is not None and asked not in form.sizes:
        return f"the target has no blocks of {asked}, only of {' '.join(map(str, sorted(form.sizes)))}"
    dividing = [size for size in ([asked] if asked is not None else form.sizes) if columns % size == 0]
    fitting = [size for size in dividing if columns >= form.least_blocks * size]
    if fitting:
        return fitting[0]
    if dividing:
        return f"its rows of {columns} hold fewer than {form.least_blocks} blocks of {dividing[-1]}"
    if form.pads:
        return asked or form.sizes[0]
    return f"blocks of {asked or ' or '.join(map(str, form.sizes))} do not divide its rows of {columns}"


def matrix_shape(layer: Layer) -> tuple[int, int]:
    """`(out, in)` of `matrix_of`, without the weight."""
    shape = layer.weight_shape
    assert shape is not None, "the layer has a weight"
    return (shape[0], shape[1]) if _has_rows(layer) else (shape[1], shape[0])


def matrix_of(layer: Layer) -> Doubles:
    """The weight as float64 `[out, in]`: a column of a product, or a row of a table, in each row; the factor of a Gemm is in it."""
    assert layer.weight is not None, "the layer has a weight"
    found = constant(layer.node.inputs[layer.weight])
    assert found is not None, "a weight is constant"
    weights = found.astype(np.float64) * float(attribute(layer.node, "alpha", 1.0) if layer.op == "Gemm" else 1.0)
    return weights if _has_rows(layer) else np.ascontiguousarray(weights.T)


def _has_rows(layer: Layer) -> bool:
    """Whether the weight as it is written has a row for each output."""
    return layer.op == TABLE_OP or (layer.op == "Gemm" and bool(attribute(layer.node, "transB", 0)))
