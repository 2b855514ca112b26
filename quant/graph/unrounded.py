"""A quantized graph without its rounding: the same weights, the same names, and everything else in FP32.

What rounding does to a tensor is then the difference to the same tensor here. Ranges stay: where a graph quantizes, values are
still held between the lowest and the highest code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.blocks.microsoft import BLOCK_PRODUCT, multiply_in_float, rounding_products
from quant.graph.halves import HALVES, TYPE_ATTRIBUTES
from quant.graph.model import add_initializer, all_graphs, attribute, constant, drop_unused_weights, read_model, write_model
from quant.graph.names import Names
from quant.graph.runtime import Runtime

_FLOAT = ir.DataType.FLOAT
_NARROW = frozenset(HALVES)
_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
_ENDS = {
    ir.DataType.INT8: (-128, 127),
    ir.DataType.UINT8: (0, 255),
    ir.DataType.INT16: (-32768, 32767),
    ir.DataType.UINT16: (0, 65535),
    ir.DataType.INT4: (-8, 7),
    ir.DataType.UINT4: (0, 15),
    ir.DataType.FLOAT8E4M3FN: (-448, 448),
    ir.DataType.FLOAT8E5M2: (-57344, 57344),
}
_WIDE_CODES = frozenset({ir.DataType.INT16, ir.DataType.UINT16})
_BITS_BEHIND_THE_POINT = {ir.DataType.FLOAT8E4M3FN: 3, ir.DataType.FLOAT8E5M2: 2}


def without_rounding(path: Path, *, weights: bool = False) -> Runtime:
    """What runs the graph in `path` without its rounding.

    Args:
        path: The graph.
        weights: Whether weights are moved, too: each to somewhere that rounds to its code. So this is a model that the graph could have been made from.

    Raises:
        ModelError: ONNX Runtime cannot load it.
    """
    model = read_model(path)
    take_rounding_away(model)
    if weights:
        move_weights(model, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as scratch:
        return Runtime(write_model(model, Path(scratch)), optimize=False)


def take_rounding_away(model: ir.Model) -> None:
    """Rewrite `model` in place: Q/DQ of activations become limits, integer products of activations float ones, FP16 and BF16 become FP32."""
    names = Names(model.graph)
    multiply_in_float(rounding_products(model))
    _widen_inputs(model.graph, names)
    for graph in list(all_graphs(model.graph)):
        _widen(graph)
    for node in list(model.graph):
        if node.op_type == "QuantizeLinear":
            _let_through(model.graph, node, names)
        elif node.op_type == "DynamicQuantizeLinear":
            _multiply_floats(model.graph, node, names)
    for node in reversed(list(model.graph)):
        if node.op_type in {"QuantizeLinear", "DynamicQuantizeLinear"} and not any(v.uses() or v.is_graph_output() for v in node.outputs):
            model.graph.remove(node, safe=True)
    drop_unused_weights(model.graph)


def move_weights(model: ir.Model, random: np.random.Generator) -> None:
    """Move every weight that is stored in codes to a random place that rounds to its code, in place: by up to half a step to either side."""
    names = Names(model.graph)
    for node in list(model.graph):
        if node.op_type == BLOCK_PRODUCT:
            _move_within(model.graph, node, random, names)
            continue
        codes = constant(node.inputs[0]) if node.op_type in {"DequantizeLinear", "Cast"} else None
        value = node.inputs[0] if node.inputs else None
        if codes is None or value is None or value.dtype not in _ENDS or value.dtype in _WIDE_CODES:
            continue
        steps = _steps(node, codes)
        moved = add_initializer(model.graph, names.new(f"{node.name}_moved"), (random.uniform(-0.5, 0.5, codes.shape) * steps).astype(np.float32))
        output = node.outputs[0]
        readers = list(output.uses())
        added = ir.node("Add", [output, moved], name=names.new(f"{node.name}_somewhere"))
        added.outputs[0].name, added.outputs[0].dtype, added.outputs[0].shape = names.new(f"{output.name}_somewhere"), _FLOAT, output.shape
        for reader, position in readers:
            reader.replace_input_with(position, added.outputs[0])
        model.graph.insert_after(node, added)


def _move_within(graph: ir.Graph, product: ir.Node, random: np.random.Generator, names: Names) -> None:
    """Move the weight that `product` holds in codes: by another product with the difference, which is added."""
    scale, source = constant(product.inputs[2]), product.inputs[0]
    if scale is None or source is None:
        return
    outs, columns, size = (attribute(product, name, 0) for name in ("N", "K", "block_size"))
    steps = np.repeat(scale.astype(np.float64).reshape(outs, -1), size, axis=1)[:, :columns]
    moved = add_initializer(graph, names.new(f"{product.name}_moved"), (random.uniform(-0.5, 0.5, steps.shape) * steps).astype(np.float32).T)
    by = ir.node("MatMul", [source, moved], name=names.new(f"{product.name}_by"))
    added = ir.node("Add", [product.outputs[0], by.outputs[0]], name=names.new(f"{product.name}_somewhere"))
    by.outputs[0].name, by.outputs[0].dtype = str(by.name), _FLOAT
    before, after = product.outputs[0], added.outputs[0]
    after.dtype, after.shape = _FLOAT, before.shape
    ir.convenience.replace_all_uses_with(before, after, replace_graph_outputs=True)
    added.replace_input_with(0, before)
    after.name, before.name = before.name, names.new(f"{before.name}_of_codes")
    graph.insert_after(product, [by, added])


def _steps(node: ir.Node, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The distance from each code of a weight to the next, as reals, `codes.shape` or what broadcasts to it."""
    if node.op_type == "Cast":  # integer products are scaled behind
        return np.ones(())
    scale = constant(node.inputs[1])
    steps = np.ones(()) if scale is None else scale.astype(np.float64)
    axis = attribute(node, "axis", 1)
    if block := attribute(node, "block_size", 0):
        steps = np.repeat(steps, block, axis=axis).take(range(codes.shape[axis]), axis=axis)
    elif steps.size > 1:
        steps = steps.reshape([-1 if i == axis % codes.ndim else 1 for i in range(codes.ndim)])
    kind = None if node.inputs[0] is None else node.inputs[0].dtype
    if kind in _BITS_BEHIND_THE_POINT:
        return np.abs(codes.astype(np.float64)) * steps * 2.0 ** -_BITS_BEHIND_THE_POINT[kind]
    return steps.reshape(()) if steps.size == 1 else steps


def _widen_inputs(graph: ir.Graph, names: Names) -> None:
    """Inputs keep their types, so that the same arrays go in; everything behind them is FP32."""
    for value in [v for v in graph.inputs if v.dtype in _NARROW]:
        readers = list(value.uses())
        cast = ir.node("Cast", [value], attributes={"to": int(_FLOAT)}, name=names.new(f"{value.name}_widened"))
        wide = cast.outputs[0]
        wide.name, wide.dtype, wide.shape = names.new(f"{value.name}_wide"), _FLOAT, value.shape
        for node, position in readers:
            node.replace_input_with(position, wide)
        graph.insert_before(graph[0], cast)


def _widen(graph: ir.Graph) -> None:
    """FP16 and BF16 become FP32, in weights, constants, casts and types."""
    for value in graph.initializers.values():
        if value.dtype in _NARROW and value.const_value is not None:
            value.const_value = ir.tensor(value.const_value.numpy().astype(np.float32), name=value.name)
            value.dtype = _FLOAT
    for value in (v for node in graph for v in node.outputs):
        if value.dtype in _NARROW:
            value.dtype = _FLOAT
    for node in graph:
        for name, found in list(node.attributes.items()):
            if found.is_ref():
                continue
            if found.type == ir.AttributeType.TENSOR and found.as_tensor().dtype in _NARROW:
                node.attributes[name] = ir.AttrTensor(name, ir.tensor(found.as_tensor().numpy().astype(np.float32)))
            elif name in TYPE_ATTRIBUTES and found.type == ir.AttributeType.INT and found.as_int() in _NARROW:
                node.attributes[name] = ir.AttrInt64(name, int(_FLOAT))


def _let_through(graph: ir.Graph, node: ir.Node, names: Names) -> None:
    """Let what `node` quantizes, unless it is a constant, go past its DequantizeLinear nodes as it is, between the same limits."""
    source = node.inputs[0]
    if source is None or constant(source) is not None:
        return
    readers = [reader for reader, position in node.outputs[0].uses() if reader.op_type == "DequantizeLinear" and position == 0]
    ends = _ends(node)
    for reader in readers:
        instead = ir.node("Identity", [source]) if ends is None else _clip(graph, source, ends, names)
        instead.name = names.new(f"{reader.name}_without_rounding")
        graph.insert_before(reader, instead)
        _replace(graph, reader, instead)


def _clip(graph: ir.Graph, source: ir.Value, ends: npt.NDArray[np.float32], names: Names) -> ir.Node:
    limits = [add_initializer(graph, names.new(f"{source.name}_{word}"), end) for word, end in zip(("low", "high"), ends, strict=True)]
    return ir.node("Clip", [source, *limits])


def _ends(node: ir.Node) -> npt.NDArray[np.float32] | None:
    """The real values of the lowest and the highest code; None where there are several scales, or one that is computed."""
    codes = node.outputs[0].dtype or ir.DataType.UINT8
    scale = constant(node.inputs[1])
    zero = constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else np.zeros(())  # noqa: PLR2004 - x, scale, zero point
    if len(node.inputs) > 2 and node.inputs[2] is not None and node.inputs[2].dtype is not None:  # noqa: PLR2004
        codes = node.inputs[2].dtype
    if scale is None or zero is None or scale.size != 1 or zero.size != 1 or codes not in _ENDS:
        return None
    steps = np.array(_ENDS[codes], np.float64) - float(zero.astype(np.float64).reshape(()))
    ends: npt.NDArray[np.float32] = (steps * float(scale.astype(np.float64).reshape(()))).astype(np.float32)
    return ends


def _multiply_floats(graph: ir.Graph, node: ir.Node, names: Names) -> None:
    """Let the integer products of what `node` quantizes multiply it unrounded, still in steps of its scale."""
    source, scale = node.inputs[0], node.outputs[1]
    products = [reader for reader, position in node.outputs[0].uses() if reader.op_type in _PRODUCTS and position == 0]
    for product in products:
        steps = ir.node("Div", [source, scale], name=names.new(f"{product.name}_steps"))
        weight = list(_as_floats(product, names))
        made = ir.node(_PRODUCTS[product.op_type], [steps.outputs[0], weight[-1].outputs[0]], attributes=dict(product.attributes), name=product.name)
        for added in (steps, *weight):
            added.outputs[0].name, added.outputs[0].dtype = names.new(str(added.name)), _FLOAT
        graph.insert_before(product, [steps, *weight, made])
        _replace(graph, product, made)


def _as_floats(product: ir.Node, names: Names) -> Iterator[ir.Node]:
    """The integer weight of `product`, its zero point taken off, as floats."""
    codes = ir.node("Cast", [product.inputs[1]], attributes={"to": int(_FLOAT)}, name=names.new(f"{product.name}_weight"))
    yield codes
    if len(product.inputs) > 3 and product.inputs[3] is not None:  # noqa: PLR2004 - a, b and the zero points of both
        zero = ir.node("Cast", [product.inputs[3]], attributes={"to": int(_FLOAT)}, name=names.new(f"{product.name}_zero"))
        yield zero
        yield ir.node("Sub", [codes.outputs[0], zero.outputs[0]], name=names.new(f"{product.name}_centred"))


def _replace(graph: ir.Graph, old: ir.Node, new: ir.Node) -> None:
    """Let `new` give what `old` gave, under its name."""
    before, after = old.outputs[0], new.outputs[0]
    after.dtype, after.shape = _FLOAT, before.shape
    ir.convenience.replace_all_uses_with(before, after, replace_graph_outputs=True)
    name = before.name
    graph.remove(old, safe=True)
    after.name = name
