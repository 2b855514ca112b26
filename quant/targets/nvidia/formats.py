"""Which number formats a graph needs its GPU to have."""

from __future__ import annotations

import onnx_ir as ir

from quant.graph.model import all_graphs

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
