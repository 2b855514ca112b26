"""ONNX Runtime's own operators on weights of 4 bits (domain `com.microsoft`): `MatMulNBits` and `GatherBlockQuantized`.

Codes lie two to a byte, the first in the low half, as numbers from 0 to 15; without zero points they are read as code - 8.
Every row of a product's weight is filled up to whole blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.formats import INT4
from quant.core.rounding.blocks import Rounded
from quant.graph.layers import FLOAT32, Layer
from quant.graph.model import add_initializer, attribute
from quant.graph.names import Names

DOMAIN = "com.microsoft"
BLOCK_PRODUCT = "MatMulNBits"
IN_FLOAT, IN_INT8 = 1, 4
"""Accuracy levels of `MatMulNBits`: it multiplies in FP32, or rounds each row that it reads to INT8 in blocks of their own scale."""
_LEVEL = "accuracy_level"
_BITS = 4
_MIDDLE = 8


def mat_mul_n_bits(graph: ir.Graph, layer: Layer, rounded: Rounded, size: int, names: Names, *, accuracy_level: int) -> ir.Node:
    """The product of `layer` with its weight in codes, `[out, blocks, size / 2]` bytes."""
    outs, columns = rounded.codes.shape
    blocks = rounded.params.scale.shape[1]
    codes, zeros = _unsigned(rounded)
    filled = np.zeros((outs, blocks * size), np.uint8)
    filled[:, :columns] = codes
    filled[:, columns:] = np.repeat(zeros, size, axis=1)[:, columns:]  # a 0, should anything be multiplied by it
    inputs = _inputs(graph, layer, {"quantized": halves(filled).reshape(outs, blocks, size // 2), "scale": rounded.params.scale}, names)
    if (zeros != _MIDDLE).any():
        inputs += _inputs(graph, layer, {"zero_point": halves(zeros)}, names)
    told = {"K": columns, "N": outs, "bits": _BITS, "block_size": size, _LEVEL: accuracy_level}
    return _node(BLOCK_PRODUCT, [layer.node.inputs[0], *inputs], names.new(f"{layer.name}_product"), told)


def rounding_products(model: ir.Model) -> list[ir.Node]:
    """The products that may round their activations to INT8, in graph order."""
    return [node for node in model.graph if node.op_type == BLOCK_PRODUCT and attribute(node, _LEVEL, 0) == IN_INT8]


def multiply_in_float(products: Iterable[ir.Node]) -> None:
    """Let each of `products` leave its activations unrounded, in place."""
    for node in products:
        node.attributes[_LEVEL] = ir.AttrInt64(_LEVEL, IN_FLOAT)


def gather_block_quantized(graph: ir.Graph, layer: Layer, rounded: Rounded, size: int, names: Names) -> ir.Node:
    """The rows of a table in codes, `[rows, columns / 2]` bytes."""
    codes, zeros = _unsigned(rounded)
    inputs = _inputs(graph, layer, {"quantized": halves(codes), "scale": rounded.params.scale}, names)
    if (zeros != _MIDDLE).any():
        inputs += _inputs(graph, layer, {"zero_point": halves(zeros)}, names)
    told = {"gather_axis": 0, "quantize_axis": 1, "block_size": size, "bits": _BITS}
    return _node("GatherBlockQuantized", [inputs[0], layer.node.inputs[1], *inputs[1:]], names.new(f"{layer.name}_rows"), told)


def _unsigned(rounded: Rounded) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Codes and zero points from 0 to 15: signed ones are moved up by 8."""
    signed = [np.asarray(a).astype(np.int8) for a in (rounded.codes, rounded.params.zero_point)]
    up = _MIDDLE if rounded.codes.dtype == INT4.dtype else 0
    return (signed[0] + up).astype(np.uint8), (signed[1] + up).astype(np.uint8)


def halves(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Rows of numbers below 16, two to a byte with the first in the low half; a row of odd length ends with a 0.

    Example:
        >>> halves(np.uint8([[1, 2, 3]])).tolist()
        [[33, 3]]
    """
    even: npt.NDArray[np.uint8] = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    return even[:, ::2] | np.left_shift(even[:, 1::2], _BITS)


def _inputs(graph: ir.Graph, layer: Layer, arrays: dict[str, npt.NDArray[Any]], names: Names) -> list[ir.Value]:
    return [add_initializer(graph, names.new(f"{layer.name}_weight_{part}"), array) for part, array in arrays.items()]


def _node(op: str, inputs: list[ir.Value | None], name: str, attributes: dict[str, int]) -> ir.Node:
    node = ir.node(op, inputs, attributes=attributes, domain=DOMAIN, name=name)
    node.outputs[0].name, node.outputs[0].dtype = name, FLOAT32
    return node
