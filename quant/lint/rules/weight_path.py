"""Q19, Q21, Q23: what stands between a layer and its weight, and layers of which only one operand is quantized."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir

from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts
from quant.lint.layers import Layer

T = ir.DataType
_BOTH_OR_NONE = frozenset({T.INT8, T.UINT8, T.FLOAT8E4M3FN})
_MXFP8 = frozenset({"TRT_MXFP8DynamicQuantize", "TRT_MXFP8QuantizeLinear"})


@RULES.add
class OneDequantizerPerWeight(Rule):
    """A weight with more than one pair, or one that is computed."""

    kind: ClassVar[str] = "Q19"
    severity: ClassVar[Severity] = "warning"
    title: ClassVar[str] = "the weight does not come from one DequantizeLinear of a constant"
    text: ClassVar[str] = "Missing Dequantization layer - 2nd input to a weighted-layer must include exactly one DQ layer | must be rooted at a Constant layer"
    why: ClassVar[str] = "The weight's codes must be known when the engine is built; a second pair rounds the weight twice."
    fix: ClassVar[str] = "Store the weight's codes, or the float weight in front of one pair."
    observed: ClassVar[str] = "Two pairs, and kernels that are computed, are accepted and run in INT8; the texts are from TensorRT's library."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Weights behind two pairs; kernels of convolutions and Gemm that are dequantized from what is computed."""
        for layer in facts.layers:
            source = layer.right.dequantizer
            if source is None:
                continue
            if not layer.right.constant:
                if layer.node.op_type != "MatMul" and layer.left.dequantizer is not None:
                    yield Place(layer.node, "the quantized weight is computed", str(source.data.name))
            elif (first := facts.maker(source.data)) is not None and facts.dequantizer(first.data) is not None:
                yield Place(layer.node, "the weight is dequantized twice", str(source.data.name))


@RULES.add
class OneOperandOnly(Rule):
    """A layer that stays in floating point, though someone quantized it."""

    kind: ClassVar[str] = "Q21"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "only one operand of the layer is quantized"
    why: ClassVar[str] = "An 8-bit kernel needs codes on both sides. With one, the layer runs in float, with the rounding error and without the speed."
    fix: ClassVar[str] = "Put Q/DQ on the other operand too, or take it off this one."
    observed: ClassVar[str] = (
        "INT8 and FP8 weights alone are dequantized inside a matrix product (smaller, not faster); in front of a convolution by a kernel of its own."
    )

    def check(self, facts: Facts) -> Iterator[Place]:
        """Convolutions with one quantized operand, and products whose activation alone is."""
        for layer in facts.layers:
            left, right = layer.left.codes, layer.right.codes
            if (left is None) == (right is None):
                continue
            codes = left if left is not None else right
            if codes not in _BOTH_OR_NONE:
                continue
            weight_only = layer.weight is not None and layer.weight.dequantizer is not None
            if weight_only and not layer.convolves:
                continue  # a scheme of its own, for memory
            yield Place(layer.node, f"{_names(layer)[0]} is {codes.name}, {_names(layer)[1]} is not quantized")


def _names(layer: Layer) -> tuple[str, str]:
    """What the quantized and the other operand are called."""
    names = ("the activation", "the weight") if layer.weight is not None or layer.convolves else ("the first operand", "the second")
    return names if layer.left.dequantizer is not None else (names[1], names[0])


@RULES.add
class NotFusedBlocks(Rule):
    """Block formats that save memory, and no time."""

    kind: ClassVar[str] = "Q23"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "the block format is expanded to floats"
    why: ClassVar[str] = (
        "FP4 weights are multiplied as FP4 only when the activation is FP4 too; MXFP8 products are not fused. Otherwise the weight is expanded each time."
    )
    fix: ClassVar[str] = "Quantize the activation with trt::TRT_FP4DynamicQuantize as well, or use FP8 per tensor."

    def check(self, facts: Facts) -> Iterator[Place]:
        """FP4 weights of layers with float activations, and MXFP8 quantizers."""
        for layer in facts.layers:
            if layer.right.codes == T.FLOAT4E2M1 and layer.left.codes != T.FLOAT4E2M1:
                yield Place(layer.node, "the weight is FP4, the activation is not")
        for node in facts.nodes:
            if node.domain == "trt" and node.op_type in _MXFP8:
                yield Place(node, "MXFP8")
