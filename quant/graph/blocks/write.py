"""Writing weights of 4 bits into a graph, in the form that a target reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Int4Form
from quant.core.formats import Params
from quant.core.rounding.blocks import Rounded
from quant.graph.blocks.microsoft import IN_INT8, gather_block_quantized, mat_mul_n_bits
from quant.graph.layers import FLOAT32, TABLE_OP, Layer
from quant.graph.model import add_initializer, attribute, constant, drop_unused_weights
from quant.graph.names import Names

_BIAS = 2


@dataclass(frozen=True)
class BlockWeight:
    """A layer and its weight in blocks.

    Args:
        layer: The layer.
        rounded: Codes and params of its matrix, `[out, in]` (see `matrix_of`).
        size: Values to a block.
    """

    layer: Layer
    rounded: Rounded
    size: int


def write_blocks(model: ir.Model, weights: Mapping[str, BlockWeight], form: Int4Form) -> None:
    """Rewrite the layers of `weights` in `model`, in place; names, inputs and outputs of the graph stay.

    A Gemm becomes a product and an Add.
    """
    graph = model.graph
    names = Names(graph)
    made: dict[tuple[int, str], list[ir.Node]] = {}
    for weight in weights.values():
        layer = weight.layer
        before = layer.node
        if layer.op == TABLE_OP:
            nodes = _TABLES[form.tables or "dequantize"](graph, weight, names)
        elif form.products == "matmulnbits":
            level = IN_INT8 if form.accuracy_level is None else form.accuracy_level
            nodes = [mat_mul_n_bits(graph, layer, weight.rounded, weight.size, names, accuracy_level=level)]
        else:
            nodes = _product(graph, weight, names)
        _share(nodes, made.setdefault((id(weight.rounded), layer.op), nodes), layer)
        nodes = nodes + _bias(graph, layer, nodes[-1].outputs[0], names)
        _put(graph, before, nodes, layer.name, names)
    if any(node.domain == "com.microsoft" for node in graph):
        graph.opset_imports.setdefault("com.microsoft", 1)
    drop_unused_weights(graph)


def _share(nodes: list[ir.Node], first: list[ir.Node], layer: Layer) -> None:
    """Let `nodes` read the codes that `first`, of the same weight, reads already."""
    for node, like in zip(nodes, first, strict=True):
        for position, value in enumerate(node.inputs):
            if value is not None and str(value.name).startswith(f"{layer.name}_weight_") and value.producer() is None:
                node.replace_input_with(position, like.inputs[position])


def _put(graph: ir.Graph, old: ir.Node, nodes: list[ir.Node], name: str, names: Names) -> None:
    """Let `nodes` stand for `old`: what computes takes its name, and the last one's output that of its output."""
    output, last = old.outputs[0], nodes[-1].outputs[0]
    last.dtype, last.shape = FLOAT32, output.shape
    graph.insert_before(old, nodes)
    ir.convenience.replace_all_uses_with(output, last, replace_graph_outputs=True)
    given = str(output.name)
    output.name = names.new(f"{given}_float")
    graph.remove(old, safe=True)
    last.name = given
    computing = next(node for node in nodes if node.op_type in {"MatMul", "Gather", "MatMulNBits", "GatherBlockQuantized"})
    computing.name = name


def _bias(graph: ir.Graph, layer: Layer, product: ir.Value, names: Names) -> list[ir.Node]:
    """The Add of a Gemm's bias, its factor worked in; nothing for other layers."""
    value = layer.node.inputs[_BIAS] if layer.op == "Gemm" and len(layer.node.inputs) > _BIAS else None
    if value is None:
        return []
    array, beta = constant(value), float(attribute(layer.node, "beta", 1.0))
    if array is not None and beta != 1.0:
        value = add_initializer(graph, names.new(f"{layer.name}_bias"), (array * np.float32(beta)).astype(np.float32))
    product.dtype = FLOAT32
    return [node_of("Add", [product, value], names.new(f"{layer.name}_biased"))]


def node_of(op: str, inputs: list[ir.Value], name: str, *, dtype: ir.DataType = FLOAT32, shape: tuple[int, ...] | None = None, **attributes: Any) -> ir.Node:
    """A node with one output, both called `name`."""
    node = ir.node(op, inputs, attributes=attributes, name=name)
    node.outputs[0].name, node.outputs[0].dtype = name, dtype
    node.outputs[0].shape = None if shape is None else ir.Shape(shape)
    return node


def _codes_and_params(graph: ir.Graph, weight: BlockWeight, names: Names, *, turned: bool) -> list[ir.Value]:
    """Codes, scale and, unless all are 0, zero point, each `[in, out]` when `turned`."""
    rounded, name = weight.rounded, f"{weight.layer.name}_weight"
    arrays: dict[str, npt.NDArray[Any]] = {"quantized": rounded.codes, "scale": rounded.params.scale}
    if has_zero_points(rounded.params):
        arrays["zero_point"] = rounded.params.zero_point
    return [add_initializer(graph, names.new(f"{name}_{part}"), np.ascontiguousarray(a.T if turned else a)) for part, a in arrays.items()]


def has_zero_points(params: Params) -> bool:
    """Whether any zero point is not 0."""
    return bool(np.asarray(params.zero_point).astype(np.int8).any())


def _dequantize(graph: ir.Graph, weight: BlockWeight, names: Names, *, turned: bool) -> ir.Node:
    """DequantizeLinear of the weight, `[in, out]` when `turned`."""
    inputs = _codes_and_params(graph, weight, names, turned=turned)
    shape = weight.rounded.codes.shape[::-1] if turned else weight.rounded.codes.shape
    name = names.new(f"{weight.layer.name}_weight_DequantizeLinear")
    return node_of("DequantizeLinear", inputs, name, shape=shape, axis=0 if turned else 1, block_size=weight.size)


def _product(graph: ir.Graph, weight: BlockWeight, names: Names) -> list[ir.Node]:
    dequantize = _dequantize(graph, weight, names, turned=True)
    source = weight.layer.node.inputs[0]
    assert source is not None, "a product has two operands"
    return [dequantize, node_of("MatMul", [source, dequantize.outputs[0]], names.new(f"{weight.layer.name}_product"))]


def _dequantized_table(graph: ir.Graph, weight: BlockWeight, names: Names) -> list[ir.Node]:
    dequantize = _dequantize(graph, weight, names, turned=False)
    return [dequantize, _gather(weight.layer, dequantize.outputs[0], names)]


def _gather(layer: Layer, table: ir.Value, names: Names) -> ir.Node:
    indices = layer.node.inputs[1]
    assert indices is not None, "a Gather has indices"
    return node_of("Gather", [table, indices], names.new(f"{layer.name}_rows"), axis=0)


def _multiplied_table(graph: ir.Graph, weight: BlockWeight, names: Names) -> list[ir.Node]:
    """Cast -> [Sub] -> Mul -> Reshape -> Gather, codes `[rows, blocks, size]`: what engines keep as codes that fold DequantizeLinear of blocks."""
    rounded, name = weight.rounded, weight.layer.name
    rows, columns = rounded.codes.shape
    blocks = rounded.params.scale.shape[1]

    def wide(array: npt.NDArray[Any], part: str, last: int) -> ir.Value:
        return add_initializer(graph, names.new(f"{name}_weight_{part}"), np.ascontiguousarray(array).reshape(rows, blocks, last))

    def cast(array: npt.NDArray[Any], part: str, last: int) -> ir.Node:
        return node_of("Cast", [wide(array, part, last)], names.new(f"{name}_weight_{part}_Cast"), shape=(rows, blocks, last), to=int(FLOAT32))

    nodes = [cast(rounded.codes, "quantized", weight.size)]
    shape = (rows, blocks, weight.size)
    if has_zero_points(rounded.params):
        nodes.append(cast(rounded.params.zero_point, "zero_point", 1))
        nodes.append(node_of("Sub", [nodes[0].outputs[0], nodes[1].outputs[0]], names.new(f"{name}_weight_Sub"), shape=shape))
    nodes.append(node_of("Mul", [nodes[-1].outputs[0], wide(rounded.params.scale, "scale", 1)], names.new(f"{name}_weight_Mul"), shape=shape))
    to = add_initializer(graph, names.new(f"{name}_weight_shape"), np.array([rows, columns], np.int64))
    nodes.append(node_of("Reshape", [nodes[-1].outputs[0], to], names.new(f"{name}_weight_Reshape"), shape=(rows, columns)))
    return [*nodes, _gather(weight.layer, nodes[-1].outputs[0], names)]


def _microsoft_table(graph: ir.Graph, weight: BlockWeight, names: Names) -> list[ir.Node]:
    return [gather_block_quantized(graph, weight.layer, weight.rounded, weight.size, names)]


_TABLES = {"dequantize": _dequantized_table, "multiply": _multiplied_table, "gatherblockquantized": _microsoft_table}
