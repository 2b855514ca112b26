"""Tied tables: one weight for the embedding and for the output layer of a language model, where a file holds it twice, once turned over.

An export multiplies by the transpose of the table, and a transpose of a weight is a weight of its own: of a small language model
it is a fifth of all bytes, and every size that is compared with FP32's would look better than it is.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quant.graph.importing.surgery import is_op, replace_node, weight_of
from quant.graph.layers import TABLE_OP, layer_of
from quant.graph.model import add_initializer
from quant.graph.names import Names

_MATRIX = 2
_FEWEST = 1 << 14
"""Elements of the smallest table that is worth it."""


def tie_tables(model: ir.Model) -> int:
    """Let products read a table itself where their weight is that table turned over; gives the number of products.

    `x W`, with the rows of x on any number of axes, becomes `Gemm(rows of x, table, transB=1)`, which keeps the product's name.
    """
    tables = [layer.node.inputs[0] for node in model.graph if (layer := layer_of(node)) is not None and layer.op == TABLE_OP]
    found = 0
    for node in list(model.graph):
        table = next((t for t in tables if t is not None and _reads_turned(node, t)), None)
        if table is not None:
            _tie(model.graph, node, table)
            found += 1
    return found


def _reads_turned(node: ir.Node, table: ir.Value) -> bool:
    """Whether `node` multiplies by a copy of `table` that is turned over, which nothing else reads."""
    weight, held = weight_of(node.inputs[1]) if is_op(node, "MatMul") else None, weight_of(table)
    value = node.inputs[1] if weight is not None else None
    if value is None or weight is None or held is None or len(value.uses()) != 1 or weight.size < _FEWEST:
        return False
    if len(weight.shape) != _MATRIX or weight.dtype != held.dtype or tuple(weight.shape) != tuple(held.shape)[::-1]:
        return False
    return np.array_equal(weight.numpy(), held.numpy().T)


def _tie(graph: ir.Graph, node: ir.Node, table: ir.Value) -> None:
    names = Names(graph)
    source, copy = node.inputs[0], node.inputs[1]
    assert source is not None
    assert copy is not None
    held = weight_of(table)
    assert held is not None, "a table is a weight"
    rows, columns = int(held.shape[0]), int(held.shape[1])  # type: ignore[arg-type]  # a weight has no symbols in its shape

    def constant(what: str, *values: int) -> ir.Value:
        return add_initializer(graph, names.new(f"{node.name}_{what}"), np.array(values, np.int64))

    def put(op: str, inputs: list[ir.Value], what: str, dtype: ir.DataType, **attributes: int) -> ir.Value:
        name = names.new(f"{node.name}_{what}")
        fresh = ir.node(op, inputs, attributes=attributes, name=name)
        fresh.outputs[0].name, fresh.outputs[0].dtype = name, dtype
        graph.insert_before(node, fresh)
        return fresh.outputs[0]

    flat = put("Reshape", [source, constant("as_rows", -1, columns)], "rows", held.dtype)
    product = put("Gemm", [flat, table], "product", held.dtype, transB=1)
    shape = put("Shape", [source], "shape", ir.DataType.INT64)
    outer = put("Slice", [shape, constant("first", 0), constant("last", -1)], "outer", ir.DataType.INT64)
    wanted = put("Concat", [outer, constant("width", rows)], "wanted", ir.DataType.INT64, axis=0)
    result = ir.node("Reshape", [product, wanted], name=names.new(f"{node.name}_result"))
    layer, gemm = node.name, product.producer()
    replace_node(graph, node, result)
    assert gemm is not None, "it was put there just now"
    gemm.name = layer
    graph.initializers.pop(str(copy.name))
