"""M01 to M04, P01: the model as a whole, and operators that no number format is to blame for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir

from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import STANDARD, Facts

_OLDEST, _NEWEST = 7, 24
_PROTOBUF_LIMIT = 2**31
_REFUSED = frozenset(
    """
    AffineGrid Bernoulli BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im Compress ConcatFromSequence CumProd DFT
    DeformConv Det ImageDecoder MaxRoiPool MaxUnpool MelWeightMatrix Multinomial NegativeLogLikelihoodLoss Optional OptionalGetElement
    OptionalHasElement RegexFullMatch SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap
    SoftmaxCrossEntropyLoss SplitToSequence StringConcat StringNormalizer StringSplit SwiGLU TfIdfVectorizer Unique
    """.split()  # noqa: SIM905
)
"""Standard operators that TensorRT-RTX 1.7.1 refuses; found by giving it each of them."""
_TENSORS = frozenset(
    {
        ir.DataType.FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.BFLOAT16,
        ir.DataType.DOUBLE,
        ir.DataType.FLOAT8E4M3FN,
        ir.DataType.FLOAT4E2M1,
        ir.DataType.FLOAT8E8M0,
        ir.DataType.INT4,
        ir.DataType.INT8,
        ir.DataType.UINT8,
        ir.DataType.INT32,
        ir.DataType.INT64,
        ir.DataType.BOOL,
    }
)
_MICROSOFT = frozenset(
    """
    Attention DequantizeLinear Gelu GroupQueryAttention MatMulNBits MultiHeadAttention QMoE QuantizeLinear RotaryEmbedding
    SimplifiedLayerNormalization SkipSimplifiedLayerNormalization
    """.split()  # noqa: SIM905
)
_TENSORRT = frozenset(
    """
    TRT_Attention TRT_BlockDequantize TRT_BlockQuantize TRT_DynamicQuantize TRT_FP4DynamicQuantize TRT_FP8DequantizeLinear TRT_FP8QuantizeLinear
    TRT_INT4DequantizeLinear TRT_INT4QuantizeLinear TRT_KVCacheUpdate TRT_MXFP8DequantizeLinear TRT_MXFP8DynamicQuantize TRT_MXFP8QuantizeLinear
    TRT_MoE TRT_QuantizedAttention
    """.split()  # noqa: SIM905
)


@RULES.add
class UnknownOperator(Rule):
    """Operators and operator sets that the parser does not know."""

    kind: ClassVar[str] = "M01"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the operator, or the operator set, is not known"
    text: ClassVar[str] = 'creator && "Plugin not found, are the plugin name, version, and namespace correct?"'
    why: ClassVar[str] = (
        "An operator that the parser does not import must be a plugin that is loaded when the engine is built. Operator sets 7 to 24 are documented."
    )
    fix: ClassVar[str] = "Export without operators of that domain (switch off the exporter's own fusions), or load the plugin; convert the operator set."
    observed: ClassVar[str] = "Standard operators without an importer are refused with the text: false. Operator sets 25 and 26 were imported."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Operators of unknown names; operator sets outside what is documented."""
        if not _OLDEST <= facts.opset <= _NEWEST and any(node.domain in STANDARD for node in facts.nodes):
            yield Place(None, f"operator set {facts.opset}; documented are {_OLDEST} to {_NEWEST}", severity="warning")
        for node in facts.nodes:
            if node.domain in STANDARD:
                if node.op_type in _REFUSED:
                    yield Place(node, f"TensorRT does not import {node.op_type}")
            elif node.domain == "trt" and node.op_type in _TENSORRT:
                continue
            elif not (node.domain == "com.microsoft" and node.op_type in _MICROSOFT):
                plugin = node.op_type.endswith("_TRT") or node.domain.lower().startswith("trt.")
                yield Place(node, f"{node.domain}::{node.op_type}{' needs its plugin' if plugin else ''}", severity="warning" if plugin else None)


@RULES.add
class TooLargeForBytes(Rule):
    """A model beyond protobuf's limit."""

    kind: ClassVar[str] = "M02"
    severity: ClassVar[Severity] = "warning"
    title: ClassVar[str] = "the model is larger than 2 GiB"
    why: ClassVar[str] = "Given to the parser as bytes, such a model can become an empty network."
    fix: ClassVar[str] = "Keep weights in external data, and give the parser the file (parse_from_file)."

    def check(self, facts: Facts) -> Iterator[Place]:
        """The size of the model with its external data."""
        if facts.setting.bytes_on_disk >= _PROTOBUF_LIMIT:
            yield Place(None, f"{facts.setting.bytes_on_disk / 2**30:.1f} GiB")


@RULES.add
class UnknownInputType(Rule):
    """Inputs of a type that TensorRT has no tensors of."""

    kind: ClassVar[str] = "M03"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "TensorRT has no tensors of this type"
    text: ClassVar[str] = 'Assertion failed: convertDtype(onnxDtype.elem_type(), &trtDtype) && "Failed to convert ONNX date type to TensorRT data type."'
    why: ClassVar[str] = "An engine's inputs are FP32, FP16, BF16, FP8, INT4, FP4, INT8, UINT8, INT32, INT64 or BOOL tensors: no texts, no sequences, no INT16."
    fix: ClassVar[str] = "Do what needs such tensors (tokenizing, decoding) in front of the engine, and feed it another type."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Graph inputs of other types."""
        for value in facts.model.graph.inputs:
            made = facts.types.get(value)
            if (made is not None and made not in _TENSORS) or isinstance(value.type, ir.SequenceType | ir.OptionalType):
                yield Place(None, f"input {value.name!r} is {value.type}", str(value.name))


@RULES.add
class AxesComputed(Rule):
    """Axes that are computed while the engine runs."""

    kind: ClassVar[str] = "M04"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the axes of a reduction are not constant"
    text: ClassVar[str] = "Assertion failed: resolvedWeights(axesWeights): Axis input must resolve to a build-time constant"
    why: ClassVar[str] = "Which axes are reduced decides the shape of the result, which must be known when the engine is built."
    fix: ClassVar[str] = "Store the axes as a constant."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Reductions whose second input depends on an input of the graph."""
        for node in facts.nodes:
            axes = node.inputs[1] if node.op_type.startswith("Reduce") and node.domain in STANDARD and len(node.inputs) > 1 else None
            if axes is not None and axes not in facts.constants:
                yield Place(node, f"{axes.name!r} is computed", str(axes.name))


@RULES.add
class NeedsProfile(Rule):
    """Inputs whose shape is not fixed."""

    kind: ClassVar[str] = "P01"
    severity: ClassVar[Severity] = "warning"
    title: ClassVar[str] = "the build must give an optimization profile"
    text: ClassVar[str] = "Network has dynamic or shape inputs, but no optimization profile has been defined."
    why: ClassVar[str] = (
        "Kernels are chosen for shapes; where the graph leaves them open, the build must say from, for and to which. Without a profile TensorRT refuses."
    )
    fix: ClassVar[str] = "Give --minShapes, --optShapes and --maxShapes to trtexec (set_shape of a profile in Python), or fix the shapes."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Inputs of the graph with a length that is not fixed."""
        for value in facts.model.graph.inputs:
            shape = facts.shape(value)
            if value.const_value is None and (shape is None or None in shape):
                shown = "of unknown rank" if shape is None else "[" + ", ".join(str(d) for d in value.shape or ()) + "]"
                yield Place(None, f"input {value.name!r} is {shown}", str(value.name))
