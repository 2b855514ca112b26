"""Which node of the graph that ONNX Runtime runs is which layer: optimizers rename what they rewrite."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping
from typing import TypeVar

import onnx_ir as ir

PREPARING = frozenset({"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear", "Cast"})
"""Operators that bring values from one format into another, and compute nothing."""
_FUSED = re.compile(r"(/\w+Fusion/?)+")  # what is added to the name of a layer that is merged, as in `layer/MatMulScaleFusion/`
_RENAMED = re.compile(r"_(QuantizeLinear|DequantizeLinear|DynamicQuantizeLinear|pre_q|quantized|dequantized|q_to_dq|q|dq)(_\d+)?$")
Found = TypeVar("Found")


def names_of(node: ir.Node, weights: Container[str | None]) -> tuple[str, ...]:
    """All names that a layer might be found by when `node` computes it: its own, those of what it makes, those of its weights."""
    # An activation that melts into a Gemm leaves it the name `fused NAME`.
    own = str(node.name).removeprefix("fused ")
    read = (v.name for v in node.inputs if v is not None and v.name in weights)
    return (str(node.name), own, own.split("/MatMulAddFusion")[0], *(str(v.name) for v in node.outputs), *map(str, read))


def find(named: Mapping[str, Found], layer: str, output: str) -> Found | None:
    """What computes `layer`, which makes `output`: found by its weight, by its own name or what it was rewritten to, or by what it makes."""
    for name in (f"{layer}_weight_quantized", layer, f"{layer}_MatMulInteger", output, f"{output}_quantized"):
        if name in named:
            return named[name]
    fused = (found for name, found in named.items() if name.startswith(layer) and _FUSED.fullmatch(name, len(layer)))
    return next(fused, None)


def original(name: str, known: Collection[str] = ()) -> str:
    """The tensor that a quantizer was written for, by the name that it or its optimizer gave to something.

    Example:
        >>> original("linear_1_pre_q"), original("layer_norm_QuantizeLinear"), original("add_3_quantized")
        ('linear_1', 'layer_norm', 'add_3')
    """
    while name not in known and (stripped := _RENAMED.sub("", name)) != name:
        name = stripped
    return name
