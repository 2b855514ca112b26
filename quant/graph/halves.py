"""FP16 and BF16 graphs for an engine that does not round to them: the same steps in FP32, each result rounded.

ONNX Runtime has no BF16 on CPUs, and few operators of FP16: between two that it has not, it leaves out the casts that it put around
them, even where it may not optimize. A graph of halves is then computed in FP32 from its first to its last node.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from quant.graph.fp16 import BFLOAT16, FLOAT16
from quant.graph.importing.types import infer_types
from quant.graph.layers import FLOAT32
from quant.graph.model import all_graphs
from quant.graph.names import Names

HALVES = (FLOAT16, BFLOAT16)
TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype"})
"""Attributes that say what type comes out."""
_NESTS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def speaks_of_halves(model: ir.Model) -> bool:
    """Whether there is any FP16 or BF16 in `model`: of a weight, an input, or that an attribute asks for."""
    return any(dtype is not None and dtype in HALVES for dtype in _told_types(model))


def round_halves(model: ir.Model) -> bool:
    """Let every node compute in FP32 and round to FP16 or BF16 what it gives in that, in place; gives whether there is such a value.

    Types that the graph does not tell are inferred.
    """
    if not speaks_of_halves(model):
        return False
    infer_types(model)
    for dtype in HALVES:
        write_rounding(model, dtype)
    return True


def _told_types(model: ir.Model) -> Iterator[int | ir.DataType | None]:
    """The types that a graph speaks of: without a word of FP16 or BF16, none comes out of it."""
    for graph in all_graphs(model.graph):
        yield from (v.dtype for v in (*graph.inputs, *graph.initializers.values()))
        for attribute in (a for node in graph for a in node.attributes.values() if not a.is_ref()):
            if attribute.type == ir.AttributeType.TENSOR:
                yield attribute.as_tensor().dtype
            elif attribute.type == ir.AttributeType.INT and attribute.name in TYPE_ATTRIBUTES:
                yield attribute.as_int()


def write_rounding(model: ir.Model, dtype: ir.DataType) -> None:
    """Let every node of the main graph compute in FP32, and round to `dtype` what it gave in that; in place.

    Sums within one operator are kept in FP32, as GPUs keep them. Weights stay as they are in the file, inputs and outputs of the graph
    keep their types, and what is nested in a node is left alone. The type of every value of `dtype` must be known.
    """
    graph, names = model.graph, Names(model.graph)
    kept = {node for node in graph if _as_it_is(node, dtype)}
    for value in [*graph.initializers.values(), *(v for v in graph.inputs if v.name not in graph.initializers)]:
        if value.dtype == dtype:
            _read_widened(graph, value, None, kept, names)
    for node in list(graph):
        for value in node.outputs:
            if _is_tensor(value) and value.dtype == dtype:
                _round(graph, node, value, kept, names)


def _is_tensor(value: ir.Value | None) -> bool:
    return value is not None and (value.type is None or isinstance(value.type, ir.TensorType))


def _as_it_is(node: ir.Node, dtype: ir.DataType) -> bool:
    """Whether `node` must go on reading and giving `dtype`: a graph in it, an attribute, or something that is no tensor says so."""
    if any(a.type in _NESTS for a in node.attributes.values()) or not all(_is_tensor(v) for v in (*node.inputs, *node.outputs) if v is not None):
        return True
    if node.op_type in {"Cast", "DequantizeLinear"}:
        return False
    return not any(v is not None and v.dtype == dtype for v in node.inputs)


def _widen(value: ir.Value, names: Names) -> ir.Node:
    cast = ir.node("Cast", [value], attributes={"to": int(FLOAT32)}, name=names.new(f"{value.name}_widened"))
    cast.outputs[0].name, cast.outputs[0].dtype, cast.outputs[0].shape = names.new(f"{value.name}_in_fp32"), FLOAT32, value.shape
    return cast


def _read_widened(graph: ir.Graph, value: ir.Value, after: ir.Node | None, kept: AbstractSet[ir.Node], names: Names) -> None:
    """Let those who read `value` of the graph itself read it in FP32, which changes no value."""
    uses = [(reader, position) for reader, position in value.uses() if reader.graph is graph and reader not in kept]
    if not uses:
        return
    cast = _widen(value, names)
    if after is None:
        graph.insert_before(graph[0], cast)
    else:
        graph.insert_after(after, cast)
    for reader, position in uses:
        reader.replace_input_with(position, cast.outputs[0])


def _round(graph: ir.Graph, node: ir.Node, value: ir.Value, kept: AbstractSet[ir.Node], names: Names) -> None:
    """Let `node` give FP32, then round it to what it gave, then widen that again."""
    if node.op_type == "Cast" or node in kept:  # it rounds by itself
        _read_widened(graph, value, node, kept, names)
        return
    dtype = value.dtype
    assert dtype is not None, "only values of a known type are rounded"
    if node.op_type == "DequantizeLinear":
        node.attributes.pop("output_dtype", None)  # it follows the scale then, which is FP32
    narrow = ir.node("Cast", [value], attributes={"to": int(dtype)}, name=names.new(f"{value.name}_rounded"))
    rounded = narrow.outputs[0]
    rounded.dtype, rounded.shape = dtype, value.shape
    ir.convenience.replace_all_uses_with(value, rounded, replace_graph_outputs=True)
    narrow.replace_input_with(0, value)
    value.dtype = FLOAT32
    name = str(value.name)
    value.name, rounded.name = names.new(f"{name}_unrounded"), name
    graph.insert_after(node, narrow)
    _read_widened(graph, rounded, narrow, kept, names)
