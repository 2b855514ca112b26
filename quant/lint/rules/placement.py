"""Q25, Q26, Q27, Q29, Q30, Q32: Q/DQ where they cost, or do not do what they seem to."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts
from quant.lint.layers import MOVING
from quant.lint.quantizers import Quantizer
from quant.lint.values import floats

_MELTING = frozenset({"BatchNormalization", "Clip", "HardSwish", "LeakyRelu", "Relu"})
_IN_FLOAT = frozenset(
    {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "Gelu", "Erf", "Sigmoid", "Tanh"}
)
_POOLS = ("AveragePool", "GlobalAveragePool", "ReduceMean")


def _pair_behind(facts: Facts, value: ir.Value) -> tuple[Quantizer, Quantizer] | None:
    """The Q and the DQ that are all that reads `value`."""
    readers = list(value.consumers())
    quantizer = facts.quantizers.get(readers[0]) if len(readers) == 1 else None
    behind = [] if quantizer is None or not quantizer.quantizes else list(quantizer.output.consumers())
    dequantizer = facts.quantizers.get(behind[0]) if len(behind) == 1 else None
    return None if quantizer is None or dequantizer is None or dequantizer.quantizes else (quantizer, dequantizer)


def _before_pair(facts: Facts, value: ir.Value) -> ir.Value:
    """What `value` was before it was quantized and dequantized; itself when it was not."""
    dequantizer = facts.dequantizer(value)
    quantizer = None if dequantizer is None else facts.maker(dequantizer.data)
    return value if quantizer is None else quantizer.data


def _adds_to(facts: Facts, node: ir.Node, value: ir.Value, layered: Collection[ir.Value]) -> bool:
    """Whether `node` adds to `value` what no layer makes: of two layers' outputs, one is the residual, and wants its codes."""
    if node.op_type != "Add":
        return False
    others = [v for v in node.inputs if v is not None and v is not value]
    return len(others) == 1 and _before_pair(facts, others[0]) not in layered


@RULES.add
class PairInsideFusion(Rule):
    """Q/DQ between a layer and what would be computed with it."""

    kind: ClassVar[str] = "Q25"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "Q/DQ stand behind a layer where they only add rounding"
    why: ClassVar[str] = (
        "A layer, its bias, the residual that is added to it, its normalization and its activation function can be one kernel; rounding in between costs "
        "accuracy and some time, and gains nothing."
    )
    fix: ClassVar[str] = "Quantize behind the activation function, and of an addition the residual; do not quantize outputs that only float operators read."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Pairs between a layer and its activation function, bias or residual, or in front of float operators only."""
        layered = {value for layer in facts.layers for value in _made_by(facts, layer.node)}
        for layer in facts.layers:
            for value in _made_by(facts, layer.node):
                pair = _pair_behind(facts, value)
                readers = [] if pair is None else list(pair[1].output.consumers())
                if pair is None or (not readers and not pair[1].output.is_graph_output()):
                    continue
                if len(readers) == 1 and (readers[0].op_type in _MELTING or _adds_to(facts, readers[0], pair[1].output, layered)):
                    yield Place(pair[0].node, f"between {layer.node.op_type} and {readers[0].op_type}", str(value.name))
                elif all(node.op_type in _IN_FLOAT for node in readers):
                    names = ", ".join(sorted({node.op_type for node in readers})) or "the graph's output"
                    yield Place(pair[0].node, f"between {layer.node.op_type} and {names}", str(value.name))


def _made_by(facts: Facts, node: ir.Node) -> Iterator[ir.Value]:
    """What a layer makes: its output, and, where all that reads it adds a constant, the sum."""
    yield node.outputs[0]
    pair = _pair_behind(facts, node.outputs[0])
    readers = list((node.outputs[0] if pair is None else pair[1].output).consumers())
    if len(readers) == 1 and readers[0].op_type == "Add" and any(v in facts.constants for v in readers[0].inputs if v is not None):
        yield readers[0].outputs[0]


@RULES.add
class FloatSkip(Rule):
    """A residual that is read as a float beside its own codes."""

    kind: ClassVar[str] = "Q26"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "the residual is added as a float, though its codes exist"
    why: ClassVar[str] = "The tensor is written and read twice, as codes for the layer and as floats for the addition."
    fix: ClassVar[str] = "Let the addition read the residual behind its DequantizeLinear, and leave the layer's output a float."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Additions of a quantized layer's output and of a float that is also quantized elsewhere."""
        outputs = {layer.node.outputs[0] for layer in facts.layers if layer.quantized}
        for node in facts.standard("Add"):
            inputs = [v for v in node.inputs if v is not None]
            for value, other in zip(inputs, reversed(inputs), strict=True):
                if other not in outputs or value in facts.constants or facts.maker(value) is not None or value is other:
                    continue
                if any((q := facts.quantizers.get(reader)) is not None and q.quantizes and q.data is value for reader in value.consumers()):
                    yield Place(node, f"{value.name!r} is read as a float, and also quantized", str(value.name))


@RULES.add
class ConcatScales(Rule):
    """Concatenated tensors with different scales."""

    kind: ClassVar[str] = "Q27"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "the inputs of Concat have different scales"
    why: ClassVar[str] = "Codes with one scale are joined without arithmetic; with different ones each is dequantized and quantized again."
    fix: ClassVar[str] = "Give all inputs and the output of a Concat the largest of their scales."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Concat nodes whose inputs are all dequantized, with more than one scale among them."""
        for node in facts.standard("Concat"):
            sources = [facts.dequantizer(v) for v in node.inputs]
            scales = {float(floats(s.scales).ravel()[0]) for s in sources if s is not None and s.scales is not None and s.scales.size == 1}
            if len(sources) > 1 and all(s is not None for s in sources) and len(scales) > 1:
                yield Place(node, "scales " + ", ".join(f"{s:g}" for s in sorted(scales)))


@RULES.add
class AverageInIntegers(Rule):
    """An average that looks quantized."""

    kind: ClassVar[str] = "Q29"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "the average between Q/DQ is computed in float"
    why: ClassVar[str] = "TensorRT averages in floating point; the codes around it are converted for nothing."
    fix: ClassVar[str] = "Leave averages in floating point, unless a layer in front of or behind them needs the codes anyway."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Averages with a dequantizer in front and a quantizer behind."""
        for node in facts.standard(*_POOLS):
            behind = [facts.quantizers.get(reader) for reader in _moved(node.outputs[0]).consumers()]
            if facts.dequantizer(node.inputs[0] if node.inputs else None) is not None and any(q is not None and q.quantizes for q in behind):
                yield Place(node, node.op_type)


def _moved(value: ir.Value) -> ir.Value:
    """`value` where it goes on, behind all that only moves it."""
    while True:
        readers = list(value.consumers())
        if len(readers) != 1 or readers[0].op_type not in MOVING - {"Cast"}:
            return value
        value = readers[0].outputs[0]


@RULES.add
class CastBehindDequantizer(Rule):
    """A change of float type between a dequantizer and its layer."""

    kind: ClassVar[str] = "Q30"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "a Cast stands between DequantizeLinear and the layer"
    why: ClassVar[str] = "The Cast can keep Q/DQ from being fused into the layer, FP8 in particular."
    fix: ClassVar[str] = "Let DequantizeLinear make the layer's type: by output_dtype (operator set 23), or by scales of that type."
    observed: ClassVar[str] = "INT8 and FP8 products were fused all the same, through a float output."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Layers with a Cast on the way from a dequantizer; FP4's two levels of scales need one."""
        for layer in facts.layers:
            for side in (layer.left, layer.right):
                cast = next((node for node in side.between if node.op_type == "Cast"), None)
                if cast is not None and side.dequantizer is not None and side.codes != ir.DataType.FLOAT4E2M1:
                    yield Place(cast, f"in front of {layer.node.op_type} {layer.node.name!r}", str(side.value.name))


@RULES.add
class PairDisagrees(Rule):
    """Codes that are written with one scale and read with another."""

    kind: ClassVar[str] = "Q32"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "Q and DQ of a pair do not agree"
    why: ClassVar[str] = "The engine computes what is written: values come back multiplied by the ratio of the two scales. It is hardly ever meant."
    fix: ClassVar[str] = "Let both nodes read the same scale and write the same axis."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Pairs with stored scales that differ in value or size, or along different axes."""
        for dq in facts.quantizers.values():
            q = None if dq.quantizes else facts.maker(dq.data)
            if q is None or not q.quantizes or q.scales is None or dq.scales is None:
                continue
            name = str(q.data.name)
            wide, other = floats(q.scales).ravel(), floats(dq.scales).ravel()
            if wide.size != other.size:
                yield Place(dq.node, f"{wide.size} scales in Q, {other.size} in DQ", name)
            elif not np.allclose(wide, other, rtol=2.0**-8, atol=0, equal_nan=True):  # the same scale may be stored in FP16 or BF16 too
                at = int(np.argmax(np.abs(wide - other)))
                yield Place(dq.node, f"scale {wide[at]:g} in Q, {other[at]:g} in DQ", name)
            elif wide.size > 1 and q.axis != dq.axis:
                yield Place(dq.node, f"axis {q.axis} in Q, {dq.axis} in DQ", name)
