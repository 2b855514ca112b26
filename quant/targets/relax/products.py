"""Matrix products: ONNX -> kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from quant.errors import TargetError
from quant.targets.relax import kernels
from quant.targets.relax.graph import Codes, Graph, Weights, array, dtype_of, inputs_of, shape_of
from quant.targets.relax.tiles import pack

_MATRIX = 2


def matmul(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`MatMul`."""
    del attrs
    return graph.plus(_product(graph, name, inputs[0], inputs[1]), None, inputs[0])


def gemm(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`Gemm`."""
    left, right, bias = inputs_of(inputs, 3)
    if attrs.get("transA", 0):
        left = graph.moved(left, lambda v: relax.op.permute_dims(v, [1, 0]), np.transpose)
    if attrs.get("transB", 0):
        right = graph.moved(right, lambda v: relax.op.permute_dims(v, [1, 0]), np.transpose)
    found = _product(graph, name, left, right)
    if (alpha := float(attrs.get("alpha", 1.0))) != 1.0:
        found = graph.emit(relax.op.multiply(found, relax.const(np.float32(alpha))))
    if bias is not None and (beta := float(attrs.get("beta", 1.0))) != 1.0:
        bias = graph.emit(relax.op.multiply(graph.cast(bias, "float32", of="float16"), relax.const(np.float32(beta))))
    return graph.plus(found, bias, left)


def matmul_integer(graph: Graph, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """`MatMulInteger` of UINT8 codes, with one zero point, and a constant matrix of symmetric INT8 codes."""
    left, right, zero, other = inputs_of(inputs, 4)
    matrix, nothing = array(right), array(other)
    centred = other is None or (nothing is not None and not nothing.any())
    if matrix is None or matrix.ndim != _MATRIX or matrix.dtype != np.int8 or dtype_of(left) != "uint8" or not centred:
        return None
    if zero is not None and math.prod(shape_of(zero)) != 1:
        return None
    if len(shape_of(left)) == 1:
        row = graph.emit(relax.op.expand_dims(left, 0))
        return graph.emit(relax.op.squeeze(matmul_integer(graph, name, [row, *inputs[1:]], attrs), 0))
    sums = _by_matrix(graph, name, left, matrix)
    if zero is None:
        return sums
    columns = relax.const(matrix.sum(axis=0, dtype=np.int64).astype(np.int32))
    return graph.emit(relax.op.subtract(sums, graph.emit(relax.op.multiply(graph.emit(relax.op.astype(zero, "int32")), columns))))


def scaled(graph: Graph, sums: Any, codes: Codes, weights: Weights, *, columns: npt.NDArray[np.int64]) -> Any:
    """What sums of products of codes stand for, with the channels on the last axis; `columns` are the sums of each channel's weights."""
    less = (codes.zero * columns).astype(np.int32)
    if less.any():
        sums = graph.emit(relax.op.subtract(sums, relax.const(less)))
    scale = (codes.scale * weights.scale.astype(np.float64)).astype(np.float32)
    return graph.emit(relax.op.multiply(graph.emit(relax.op.astype(sums, "float32")), relax.const(np.atleast_1d(scale))))


def _product(graph: Graph, name: str, left: Any, right: Any) -> Any:
    """`left @ right`, in FP32."""
    ranks = len(shape_of(left)), len(shape_of(right))
    if ranks[0] == 1:
        row = graph.moved(left, lambda v: relax.op.expand_dims(v, 0), lambda a: a[None])
        return graph.emit(relax.op.squeeze(_product(graph, name, row, right), -2))
    if ranks[1] == 1:
        column = graph.moved(right, lambda v: relax.op.expand_dims(v, 1), lambda a: a[:, None])
        return graph.emit(relax.op.squeeze(_product(graph, name, left, column), -1))
    codes, weights = graph.left(left), graph.symmetric(right, axis=1) if ranks[1] == _MATRIX else None
    if codes is not None and weights is not None:
        sums = _by_matrix(graph, name, codes.values, weights.codes)
        return scaled(graph, sums, codes, weights, columns=weights.codes.sum(axis=0, dtype=np.int64))
    matrix = array(right)
    if matrix is not None and ranks[1] == _MATRIX:
        return _by_matrix(graph, name, left, matrix)
    other = graph.right(right)
    if codes is not None and other is not None:
        return _of_codes(graph, name, codes, other)
    return graph.kernel("product", lambda a, b: kernels.product(a, b, layer=name), left, right)


def _by_matrix(graph: Graph, name: str, left: Any, matrix: npt.NDArray[Any]) -> Any:
    """Sums of products with a constant matrix `[in, out]`."""
    channels = matrix.shape[1]
    return graph.kernel("rows", lambda a, k: kernels.rows(a, k, layer=name, channels=channels), left, pack(np.ascontiguousarray(matrix.T)))


def _of_codes(graph: Graph, name: str, left: Codes, right: Codes) -> Any:
    """Sum of (a - za) (b - zb) = sum of a b - za * (sum of b) - zb * (sum of a) + za zb * (length of the sum)."""
    sums = graph.kernel("product", lambda a, b: kernels.product(a, b, layer=name), left.values, right.values)
    for codes, zero, axis in ((right, left.zero, -2), (left, right.zero, -1)):
        if zero:
            whole = graph.emit(relax.op.sum(graph.emit(relax.op.astype(codes.values, "int32")), axis=axis, keepdims=True))
            sums = graph.emit(relax.op.subtract(sums, graph.emit(relax.op.multiply(whole, relax.const(zero, "int32")))))
    if left.zero and right.zero:
        length = shape_of(left.values)[-1]
        if not isinstance(length, int):
            what = f"it multiplies codes with two zero points along an axis of dynamic length ({length})"
            raise TargetError(what, where=f"layer {name!r}", hint="quantize one of the two symmetrically")
        sums = graph.emit(relax.op.add(sums, relax.const(left.zero * right.zero * length, "int32")))
    return graph.emit(relax.op.multiply(graph.emit(relax.op.astype(sums, "float32")), relax.const(np.float32(left.scale * right.scale))))
