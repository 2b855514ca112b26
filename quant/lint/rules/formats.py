"""Q14, Q15, Q16, Q18, Q20, Q31, H01: number formats that TensorRT, or the GPU, does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from quant.graph.model import add_initializer, all_graphs
from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts
from quant.lint.values import floats

T = ir.DataType
_FOREIGN = frozenset(
    {T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ, T.UINT4, T.INT16, T.UINT16, T.UINT2, T.INT2, T.FLOAT6E2M3, T.FLOAT6E3M2},
)
_MADE_BY_QUANTIZERS = frozenset({T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ, T.INT4, T.UINT4, T.FLOAT4E2M1})
_INTEGER_OPS = frozenset({"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"})
_SINCE = {T.BFLOAT16: (80, "b16"), T.INT4: (80, "int4"), T.FLOAT8E4M3FN: (89, "fp8_e4m3"), T.FLOAT4E2M1: (100, "fp4_e2m1")}
_BLACKWELL = 100


@RULES.add
class UnknownFormat(Rule):
    """Codes of a type that TensorRT does not have."""

    kind: ClassVar[str] = "Q14"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "TensorRT does not have this type of codes"
    text: ClassVar[str] = "convertOnnxWeights(initializer, &weights): Failed to import initializer"
    why: ClassVar[str] = "Codes may be INT8, FP8 E4M3FN, INT4 or FP4 E2M1: no other FP8, no unsigned 4 bits, no 16 bits."
    fix: ClassVar[str] = "Quantize to one of those; unsigned 4-bit weights can be made symmetric and signed."
    observed: ClassVar[str] = (
        "A QuantizeLinear that makes such codes from an activation is refused with another text: output_dtype specifies an unsupported data type."
    )

    def check(self, facts: Facts) -> Iterator[Place]:
        """Quantizers of such codes, each tensor once, and stored tensors that no quantizer reads."""
        told: set[ir.Value] = set()
        for q in facts.quantizers.values():
            if q.codes in _FOREIGN:
                told |= {v for v in (q.data, q.output, q.zero) if v is not None}
                yield Place(q.node, f"codes of {q.codes.name}", str(q.data.name))
        for graph in all_graphs(facts.model.graph):
            for value in graph.initializers.values():
                kept = value.const_value
                if kept is not None and kept.dtype in _FOREIGN and value not in told:
                    yield Place(next(iter(value.consumers()), None), f"stored as {kept.dtype.name}", str(value.name))


@RULES.add
class IntegerBias(Rule):
    """A bias in INT32, as ONNX Runtime wants it."""

    kind: ClassVar[str] = "Q15"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "a bias is dequantized from INT32"
    text: ClassVar[str] = "input has type Int32 but must have type FP8, FP4, Int4, Int8, or UInt8."
    why: ClassVar[str] = "TensorRT adds biases in floating point, and has no DequantizeLinear of INT32."
    fix: ClassVar[str] = "Keep biases in floating point; --fix stores the values that the INT32 codes stand for."

    def check(self, facts: Facts) -> Iterator[Place]:
        """DequantizeLinear of INT32."""
        for q in facts.quantizers.values():
            if not q.quantizes and q.codes == T.INT32:
                yield Place(q.node, "codes are INT32", str(q.data.name))

    def mend(self, facts: Facts) -> int:
        """Store the float values of INT32 codes."""
        count = 0
        for q in facts.quantizers.values():
            codes = facts.array(q.data)
            if q.quantizes or q.codes != T.INT32 or codes is None or q.scales is None or q.output.is_graph_output() or (q.zero is not None and q.zeros is None):
                continue
            axis = q.positive_axis
            spread = [1] * codes.ndim
            if q.granularity == "channel" and axis is not None:
                spread[axis] = -1
            scale, zero = (
                floats(q.scales).reshape(spread if q.scales.size > 1 else ()),
                0 if q.zeros is None else floats(q.zeros).reshape(spread if q.zeros.size > 1 else ()),
            )
            values = ((codes.astype(np.float64) - zero) * scale).astype(np.float32)
            made = facts.types.get(q.output, T.FLOAT)
            value = add_initializer(facts.model.graph, f"{q.output.name}_float", values.astype(made.numpy()))
            ir.convenience.replace_all_uses_with(q.output, value)
            assert q.node.graph is not None, "the node stands in a graph"
            q.node.graph.remove(q.node, safe=True)
            count += 1
        return count


@RULES.add
class IntegerOperator(Rule):
    """Operators that compute on codes themselves."""

    kind: ClassVar[str] = "Q16"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the operator computes on codes"
    text: ClassVar[str] = "UNSUPPORTED_NODE: false"
    why: ClassVar[str] = "TensorRT makes its integer kernels from Q/DQ around float operators; it has none of ONNX's integer operators, nor dynamic INT8."
    fix: ClassVar[str] = "Quantize to Q/DQ form (QDQ format, static ranges) instead of operator form."

    def check(self, facts: Facts) -> Iterator[Place]:
        """QLinear..., ...Integer and DynamicQuantizeLinear."""
        for node in facts.standard(*_INTEGER_OPS):
            yield Place(node, node.op_type)


@RULES.add
class CastToCodes(Rule):
    """A Cast where a QuantizeLinear belongs."""

    kind: ClassVar[str] = "Q18"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "a Cast makes codes"
    text: ClassVar[str] = (
        "is not produced by IPluginLayer, IPluginV2Layer, IPluginV3Layer, IQuantizeLayer, IConstantLayer, IConcatenationLayer, IShuffleLayer, or IdentityLayer."
    )
    why: ClassVar[str] = "FP8 and 4-bit tensors may only be made by a quantizer, or be stored."
    fix: ClassVar[str] = "Replace the Cast by a QuantizeLinear with a scale of 1, or store the codes."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Casts to FP8, FP4 or INT4."""
        for node in facts.standard("Cast"):
            made = facts.types.get(node.outputs[0])
            if made in _MADE_BY_QUANTIZERS:
                yield Place(node, f"Cast to {made.name}", str(node.outputs[0].name))


@RULES.add
class OperandsDiffer(Rule):
    """Activation and weight in different formats."""

    kind: ClassVar[str] = "Q20"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the two operands have different types of codes"
    text: ClassVar[str] = "CHECK(dtype == W.type()) failed | CHECK(opndA->type() == opndB->type()) failed. Input and filter have to be the same type"
    why: ClassVar[str] = "No kernel multiplies codes of different types."
    fix: ClassVar[str] = "Quantize both operands to the same format; leave activations in floating point in front of INT4 weights."
    observed: ClassVar[str] = (
        "INT8 activations with INT4 weights build: the weight is cast to INT8. FP8 activations with INT4 weights fail with: "
        "type mismatch between matmul operand scales."
    )

    def check(self, facts: Facts) -> Iterator[Place]:
        """Layers with both operands quantized, to different types."""
        for layer in facts.layers:
            left, right = layer.left.codes, layer.right.codes
            if left is None or right is None or left == right or {left, right} & (_FOREIGN | {T.INT32, T.UINT8}):
                continue
            works = {left, right} == {T.INT8, T.INT4}
            tail = "; the INT4 operand is cast to INT8 first" if works else ""
            yield Place(layer.node, f"{left.name} times {right.name}{tail}", severity="silent" if works else None)


@RULES.add
class FamiliesMixed(Rule):
    """INT8 layers and FP8 layers in one graph."""

    kind: ClassVar[str] = "Q31"
    severity: ClassVar[Severity] = "warning"
    title: ClassVar[str] = "some layers are INT8 and others FP8"
    text: ClassVar[str] = "INT8 and FP8 mixed precision is allowed only ... on Blackwell+ platforms"
    why: ClassVar[str] = "Before Blackwell (compute capability 10.0), TensorRT may refuse a graph with both."
    fix: ClassVar[str] = "Use one 8-bit format in a model."
    observed: ClassVar[str] = "Accepted for compute capability 8.9."

    def check(self, facts: Facts) -> Iterator[Place]:
        """The first FP8 layer of a graph that also has INT8 layers."""
        capability = facts.setting.capability
        if capability is not None and capability >= _BLACKWELL:
            return
        by_type = {codes: [x for x in facts.layers if x.quantized and x.left.codes == x.right.codes == codes] for codes in (T.INT8, T.FLOAT8E4M3FN)}
        if all(by_type.values()):
            yield Place(by_type[T.FLOAT8E4M3FN][0].node, f"{len(by_type[T.INT8])} INT8 layers, {len(by_type[T.FLOAT8E4M3FN])} FP8 layers")


@RULES.add
class NotOnThisGpu(Rule):
    """A type that the GPU has no arithmetic for."""

    kind: ClassVar[str] = "H01"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the GPU does not have this type"
    text: ClassVar[str] = "Cannot compile for target(s) ..., because the model contains HW-specific datatypes"
    why: ClassVar[str] = "BF16 and INT4 need compute capability 8.0, FP8 8.9, FP4 10.0."
    fix: ClassVar[str] = "Use a format that the GPU has: INT8 or FP16 work on all."

    def check(self, facts: Facts) -> Iterator[Place]:
        """The first value of each type that is too new for the capability that is asked for."""
        capability = facts.setting.capability
        if capability is None:
            return
        told: set[ir.DataType] = set()
        for node in facts.nodes:
            for value in (*node.inputs, *node.outputs):
                made = None if value is None else facts.types.get(value)
                if value is None or made is None or made in told or capability >= _SINCE.get(made, (0, ""))[0]:
                    continue
                told.add(made)
                since, name = _SINCE[made]
                yield Place(node, f"{name} ({made.name}) needs compute capability {since / 10:.1f}; this is {capability / 10:.1f}", str(value.name))
