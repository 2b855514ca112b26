"""Which number formats the GPUs of each compute capability compute in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from quant.graph.model import all_graphs

_EVERYWHERE = frozenset({"fp32", "fp16", "int8"})
_AMPERE = _EVERYWHERE | {"bf16", "int4"}
_ADA = _AMPERE | {"fp8"}
_BLACKWELL = _ADA | {"fp4"}

FORMATS: Mapping[str, frozenset[str]] = {"sm75": _EVERYWHERE, "sm80": _AMPERE, "sm86": _AMPERE, "sm89": _ADA, "sm120": _BLACKWELL}
"""Compute capability -> formats that its GPUs have instructions for."""

_NAMES = {
    ir.DataType.BFLOAT16: "bf16",
    ir.DataType.FLOAT8E4M3FN: "fp8",
    ir.DataType.FLOAT8E5M2: "fp8",
    ir.DataType.INT4: "int4",
    ir.DataType.UINT4: "int4",
    ir.DataType.FLOAT4E2M1: "fp4",
}


def formats_in(model: ir.Model) -> frozenset[str]:
    """The formats in `model` that not every GPU has.

    Only types that are written down count: of weights, and of values whose type is known.
    """
    found: set[ir.DataType | None] = set()
    for graph in all_graphs(model.graph):
        found |= {value.dtype for value in graph.initializers.values()} | {value.dtype for value in graph.inputs}
        found |= {value.dtype for node in graph for value in node.outputs}
    return frozenset(_NAMES[dtype] for dtype in found if dtype is not None and dtype in _NAMES)


def lacking(capability: str, formats: Iterable[str]) -> tuple[str, ...]:
    """Those of `formats` that GPUs of `capability` have no instructions for, sorted.

    Example:
        >>> lacking("sm86", ["fp16", "fp8", "int8"]), lacking("sm89", ["fp8"])
        (('fp8',), ())
    """
    return tuple(sorted(set(formats) - FORMATS[capability]))
