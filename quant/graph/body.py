"""The body: what a quantized graph computes the rest in, where its engine wants every type written into the graph.

Q/DQ nodes take and give the body's type themselves, with scales in FP32: a Cast between them and the layer they belong to
would keep an engine from fusing them, and a scale in FP16 would be rounded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from quant.core.dialect import Body
from quant.core.documents import LayerChoice, PrecisionPlan
from quant.graph.fp16 import BFLOAT16, FLOAT16, FP16_MAX, keep_reasons, write_fp16
from quant.graph.layers import find_layers
from quant.graph.model import add_initializer, attribute, constant, drop_unused_weights
from quant.graph.names import Names

BODY_OPSET = 23
"""QuantizeLinear takes a scale of another type than its input from here on, and DequantizeLinear has an `output_dtype`."""
HEADROOM = 2.0
"""A tensor stays FP32 when this many times its largest calibrated magnitude exceeds what FP16 can hold."""


def write_body(model: ir.Model, plan: PrecisionPlan, magnitudes: Mapping[str, float], body: Body = "fp16") -> PrecisionPlan:
    """Cast what `plan` left in FP32 to `body`, in place; what would overflow stays, and so do inputs and outputs.

    Args:
        model: A graph with Q/DQ, of operator set `BODY_OPSET` or newer.
        plan: What was quantized in it.
        magnitudes: Tensor -> largest magnitude seen in calibration.
        body: `fp16` or `bf16`; `fp32` leaves the graph as it is.

    Returns:
        The plan with the format that each layer has now.
    """
    if body == "fp32":
        return plan
    dtype = BFLOAT16 if body == "bf16" else FLOAT16
    limit = FP16_MAX / HEADROOM if body == "fp16" else float("inf")  # BF16 reaches as far as FP32
    keep = keep_reasons(model, _behind_pairs(model, magnitudes), limit=limit, dtype=dtype)
    find_layers(model)  # gives every layer's node the layer's name
    nodes = {str(node.name): node for node in model.graph}
    write_fp16(model, keep=keep, dtype=dtype)
    _join_casts(model.graph, dtype)
    return PrecisionPlan(scheme=plan.scheme, base=plan.base, layers=tuple(_choice(c, body, keep.get(nodes[c.layer])) for c in plan.layers))


def _choice(choice: LayerChoice, body: str, kept: str | None) -> LayerChoice:
    if choice.format != "fp32":
        return choice
    if kept is None:
        return LayerChoice(layer=choice.layer, op=choice.op, format=body, reason=choice.reason)
    return LayerChoice(layer=choice.layer, op=choice.op, format=choice.format, reason=f"{choice.reason}; {kept}")


def _behind_pairs(model: ir.Model, magnitudes: Mapping[str, float]) -> dict[str, float]:
    """`magnitudes`, and those of what stands behind a Q/DQ pair: the magnitude of what goes in."""
    found = dict(magnitudes)
    for node in model.graph:
        quantize = _producer(node.inputs[0], "QuantizeLinear") if node.op_type == "DequantizeLinear" else None
        source = quantize.inputs[0] if quantize is not None else None
        if source is not None and source.name in magnitudes:
            found[str(node.outputs[0].name)] = magnitudes[str(source.name)]
    return found


def _producer(value: ir.Value | None, op: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == op else None


def _join_casts(graph: ir.Graph, dtype: ir.DataType) -> None:
    """Let Quantize read `dtype` itself, and Dequantize give it, instead of a Cast beside them."""
    names = Names(graph)
    for node in list(graph):
        if node.op_type == "QuantizeLinear":
            cast = _producer(node.inputs[0], "Cast")
            if cast is not None and cast.inputs[0] is not None and cast.inputs[0].dtype == dtype:
                node.replace_input_with(0, cast.inputs[0])
        elif node.op_type == "DequantizeLinear":
            _give_half(graph, node, dtype, names)
    for node in reversed(list(graph)):
        if node.op_type == "Cast" and not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
            graph.remove(node, safe=True)
    drop_unused_weights(graph)


def _give_half(graph: ir.Graph, node: ir.Node, dtype: ir.DataType, names: Names) -> None:
    """Dequantize to `dtype` for those who cast to it; others go on reading FP32."""
    value = node.outputs[0]
    casts = [
        reader
        for reader, _ in value.uses()
        if reader.op_type == "Cast" and attribute(reader, "to", None) == int(dtype) and not reader.outputs[0].is_graph_output()
    ]
    if not casts:
        return
    attributes = [a for a in node.attributes.values() if a.name != "output_dtype"]
    inputs = [node.inputs[0], _scale_of_blocks(graph, node, dtype, names) or node.inputs[1], *node.inputs[2:]]
    half = ir.Node("", "DequantizeLinear", inputs, [*attributes, ir.AttrInt64("output_dtype", int(dtype))], name=names.new(f"{node.name}_half"))
    half.outputs[0].name, half.outputs[0].dtype, half.outputs[0].shape = names.new(f"{value.name}_half"), dtype, value.shape
    graph.insert_after(node, half)
    for cast in casts:
        ir.convenience.replace_all_uses_with(cast.outputs[0], half.outputs[0])
        graph.remove(cast, safe=True)
    if not value.uses() and not value.is_graph_output():
        name, given = node.name, value.name
        graph.remove(node, safe=True)
        half.name, half.outputs[0].name = name, given


def _scale_of_blocks(graph: ir.Graph, node: ir.Node, dtype: ir.DataType, names: Names) -> ir.Value | None:
    """The scale of blocks in `dtype`, where it is exact there: TensorRT builds nothing from blocks whose scale is of another type than they become."""
    value, scale = node.inputs[1], constant(node.inputs[1])
    if value is None or scale is None or not attribute(node, "block_size", 0):
        return None
    with np.errstate(over="ignore"):
        narrow = scale.astype(dtype.numpy())
    if not np.array_equal(narrow.astype(scale.dtype), scale):
        return None
    return add_initializer(graph, names.new(f"{value.name}_half"), narrow)
