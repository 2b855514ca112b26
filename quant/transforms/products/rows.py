"""The constant row that is added to a product: the bias of a layer that has no input for one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.layers import Layer
from quant.graph.model import constant

_MATRIX = 2


def added_row(layer: Layer) -> tuple[ir.Node, int, npt.NDArray[np.float32]] | None:
    """(Add, position of the row, row) of what is added to the product of a MatMul of three axes or more; None when there is no such row."""
    product = layer.node.outputs[0]
    readers = list(product.uses())
    if layer.op != "MatMul" or product.shape is None or len(product.shape) <= _MATRIX or product.is_graph_output() or len(readers) != 1:
        return None
    add, position = readers[0]
    if add.op_type != "Add" or add.graph is not layer.node.graph:
        return None
    row, shape = constant(add.inputs[1 - position]), layer.weight_shape
    if row is None or shape is None or row.shape != shape[1:] or row.dtype != np.float32:
        return None
    return add, 1 - position, row
