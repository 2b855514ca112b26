"""BF16 graphs for an engine that has no BF16: the same steps in FP32, each result rounded to BF16."""

from __future__ import annotations

import onnx_ir as ir

from quant.graph.fp16 import BFLOAT16
from quant.graph.layers import FLOAT32
from quant.graph.model import all_graphs
from quant.graph.names import Names


def has_bf16(model: ir.Model) -> bool:
    """Whether any weight or value of `model` is known to be BF16."""
    graphs = list(all_graphs(model.graph))
    values = [v for graph in graphs for v in (*graph.initializers.values(), *graph.inputs, *(out for node in graph for out in node.outputs))]
    return any(value.dtype == BFLOAT16 for value in values)


def write_rounding(model: ir.Model) -> None:
    """Let every node of the main graph compute in FP32, and round to BF16 what it gave in BF16; in place.

    Sums within one operator are kept in FP32, as GPUs keep them. Weights stay BF16 in the file. The type of every BF16 value must be known,
    and inputs and outputs of the graph must be none.
    """
    graph, names = model.graph, Names(model.graph)
    for value in list(graph.initializers.values()):
        if value.dtype == BFLOAT16:
            _read_widened(graph, value, names)
    for node in list(graph):
        for value in node.outputs:
            if value.dtype == BFLOAT16:
                _round(graph, node, value, names)


def _widen(value: ir.Value, names: Names) -> ir.Node:
    cast = ir.node("Cast", [value], attributes={"to": int(FLOAT32)}, name=names.new(f"{value.name}_widened"))
    cast.outputs[0].name, cast.outputs[0].dtype, cast.outputs[0].shape = names.new(f"{value.name}_in_fp32"), FLOAT32, value.shape
    return cast


def _read_widened(graph: ir.Graph, value: ir.Value, names: Names) -> None:
    """Let the readers of a weight read it in FP32, which changes no value."""
    uses = list(value.uses())
    cast = _widen(value, names)
    graph.insert_before(graph[0], cast)
    for reader, position in uses:
        reader.replace_input_with(position, cast.outputs[0])


def _round(graph: ir.Graph, node: ir.Node, value: ir.Value, names: Names) -> None:
    """Let `node` give FP32, then round to BF16, then widen again."""
    uses = list(value.uses())
    if node.op_type == "Cast":
        rounded, after = value, node  # it rounds by itself
    else:
        value.dtype = FLOAT32
        if node.op_type == "DequantizeLinear":
            node.attributes.pop("output_dtype", None)  # it follows the scale then, which is FP32
        narrow = ir.node("Cast", [value], attributes={"to": int(BFLOAT16)}, name=names.new(f"{value.name}_rounded"))
        rounded, after = narrow.outputs[0], narrow
        rounded.name, rounded.dtype, rounded.shape = names.new(f"{value.name}_in_bf16"), BFLOAT16, value.shape
        graph.insert_after(node, narrow)
    cast = _widen(rounded, names)
    graph.insert_after(after, cast)
    for reader, position in uses:
        reader.replace_input_with(position, cast.outputs[0])
