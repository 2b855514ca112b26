"""Types of inner tensors: files need not say them, and what is cast or measured later goes by them."""

from __future__ import annotations

import onnx_ir as ir

from quant.graph.importing.surgery import all_nodes


def infer_types(model: ir.Model) -> int:
    """Give values without a type the one that ONNX infers, and their shape; gives their number. What a file says stays as it is."""
    missing = [v for node in all_nodes(model) for v in node.outputs if v.dtype is None and v.name]
    if not missing:
        return 0
    from onnx_ir.passes.common import ShapeInferencePass  # noqa: PLC0415 - heavy

    inferred = model.clone()  # weights are shared, not copied
    ShapeInferencePass(check_type=False, strict_mode=False)(inferred)
    known = {v.name: v for node in all_nodes(inferred) for v in node.outputs if v.dtype is not None}
    found = [(v, known[v.name]) for v in missing if v.name in known]
    for value, other in found:
        value.type = other.type
        value.shape = value.shape or other.shape
    return len(found)
