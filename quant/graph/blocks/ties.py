"""Weights that several layers read: in fewer bits for all of them, or for none, and what is written twice is told."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from quant.core.documents import PrecisionPlan
from quant.graph.blocks.matrices import matrix_of, matrix_shape
from quant.graph.layers import TABLE_OP, Layer


def weight_value(layer: Layer) -> ir.Value:
    """The weight of a layer that has one."""
    value = layer.node.inputs[layer.weight] if layer.weight is not None else None
    assert value is not None, "the layer has a weight"
    return value


def keep_ties(plan: PrecisionPlan, layers: Sequence[Layer]) -> PrecisionPlan:
    """`plan` without the layers whose weight is also read by something that stays in float: both copies would be kept."""
    by_name = {layer.name: layer for layer in layers}
    left = plan
    while True:
        chosen = [by_name[name] for name in left.quantized]
        own = {id(layer.node) for layer in chosen}
        reasons = {layer.name: f"its weight is also read by {other.name!r}, which stays in float" for layer in chosen if (other := _other(layer, own))}
        if not reasons:
            return left
        choices = (c.model_copy(update={"format": "fp32", "reason": reasons[c.layer]}) if c.layer in reasons else c for c in left.layers)
        left = left.model_copy(update={"layers": tuple(choices)})


def _other(layer: Layer, own: Collection[int]) -> ir.Node | None:
    """What else reads the weight of `layer` and is none of `own`."""
    return next((node for node, _ in weight_value(layer).uses() if id(node) not in own), None)


def written_twice(layers: Sequence[Layer]) -> dict[str, str]:
    """Name of a table -> what is to be said of it, where its values are the weight of a product, too: no form holds both in one."""
    tables = [layer for layer in layers if layer.op == TABLE_OP]
    products = [layer for layer in layers if layer.op != TABLE_OP]
    said = {}
    for table in tables:
        alike = next((p for p in products if matrix_shape(p) == matrix_shape(table) and np.array_equal(matrix_of(p), matrix_of(table))), None)
        if alike is not None:
            said[table.name] = f"tied to {alike.name!r}: its codes are written a second time"
    return said
