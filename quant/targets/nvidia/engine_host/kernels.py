"""What an ONNX node runs in, read from an engine's list of layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .layers import EngineLayer

_PRODUCTS = frozenset({"gemm", "correlation", "convolution", "deconv", "CaskConvolution", "CaskGemmConvolution", "CaskDeconvolution", "CaskGemm"})
"""Kernels that are a product and nothing else."""
_DEQUANTIZES = "runtime_fusion"
"""A kernel made at load time; it reads codes, but turns them into floats before it multiplies."""
_ATTENTION = "_gemm_mha"
"""How names of kernels begin that hold a whole attention: both products and the softmax between them."""
_CODES = {"Int8": "int8", "FP8": "fp8"}
"""Types of codes that are multiplied as they are, activations and weights alike."""
_WEIGHT_CODES = {"Int4": "int4"}
"""Types of codes that only weights have: they become floats within the kernel that multiplies."""
_FLOATS = {"Half": "fp16", "BFloat16": "bf16", "Float": "fp32"}


@dataclass(frozen=True)
class Product:
    """A layer of the graph that was exported, as its node is written there.

    Args:
        node: Name of the node.
        weighted: Whether one of its operands is a constant.
        dequantizers: Names of the DequantizeLinear nodes that give its operands.
    """

    node: str
    weighted: bool
    dequantizers: frozenset[str]


def kernel_of(layers: Sequence[EngineLayer], product: Product) -> tuple[str, str]:
    """The kernel that computes `product`, and the format that it computes in (`unknown` when there is none in the list)."""
    around = [layer for layer in layers if product.node in layer.nodes]
    computing = [layer for layer in around if layer.kind in _PRODUCTS or layer.kind == _DEQUANTIZES or _is_attention(layer)] or around
    if not computing:
        return "(not found)", "unknown"
    found = [(layer, _format(layer, product)) for layer in computing]
    layer, runs = next(((x, r) for x, r in found if r in _FLOATS.values()), found[0])  # one kernel in floats is enough to say so
    return _title(layer), runs


def read_product(row: Mapping[str, Any]) -> Product:
    """The product in a row of `expected_precisions.json`."""
    return Product(str(row["node"]), bool(row["weighted"]), frozenset(row["dequantizers"]))


def _is_attention(layer: EngineLayer) -> bool:
    return layer.name.startswith(_ATTENTION)


def _title(layer: EngineLayer) -> str:
    return f"{layer.kind} {_ATTENTION.strip('_')}" if _is_attention(layer) else layer.kind


def _format(layer: EngineLayer, product: Product) -> str:
    if codes := next((name for kind, name in _CODES.items() if _multiplies(layer, product, kind)), None):
        return codes
    # A kernel may stand for other layers as well, whose weights are codes.
    if product.weighted and product.dequantizers & set(layer.nodes) and (weights := next((n for k, n in _WEIGHT_CODES.items() if k in layer.constants), None)):
        return weights
    operands = (*layer.inputs, *layer.constants)
    return _narrowest((*operands, *layer.outputs) if set(_CODES) & set(operands) else operands)  # codes tell nothing of the floats that they become


def _multiplies(layer: EngineLayer, product: Product, codes: str) -> bool:
    """Whether the operands of `product` are codes of this type in `layer`."""
    if layer.kind in _PRODUCTS:
        inputs = layer.inputs.count(codes)
        return inputs >= 1 and codes in layer.constants if product.weighted else inputs > 1
    # A kernel of a whole attention takes Q/DQ into itself; where one is missing, another kernel takes its place.
    return _is_attention(layer) and len(product.dequantizers) > 1 and product.dequantizers <= set(layer.nodes) and codes in layer.inputs


def _narrowest(types: Collection[str]) -> str:
    """The format of a float kernel: that of its narrowest operand (scales and factors beside it are FP32)."""
    return next((name for kind, name in _FLOATS.items() if kind in types), "fp32")
