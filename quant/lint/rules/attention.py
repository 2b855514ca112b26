"""Q24: attention whose products are quantized, but not so that they become one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir

from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts
from quant.lint.layers import Layer

_MAX_HEAD = 256
_SCALING = frozenset({"Add", "Cast", "Div", "Mul", "Where"})


@RULES.add
class AttentionNotFused(Rule):
    """Quantized attention that falls apart."""

    kind: ClassVar[str] = "Q24"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "the quantized attention is not fused"
    why: ClassVar[str] = (
        "One kernel needs codes at both products: Q, K, the output of softmax and V. Without any of them there are three kernels and a score matrix in memory."
    )
    fix: ClassVar[str] = "Put Q/DQ behind softmax too, with the fixed scale 1/127 (INT8) or 1/448 (FP8); head sizes above 256 are not fused."
    observed: ClassVar[str] = "FP8 attention became one kernel for compute capability 8.9; INT8 attention stayed two products even when complete."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Softmax between two products of activations, of which the first is quantized."""
        by_output = {layer.node.outputs[0]: layer for layer in facts.layers if layer.node.op_type == "MatMul"}
        readers: dict[ir.Value, list[Layer]] = {}
        for layer in by_output.values():
            readers.setdefault(_before_pair(layer.left.value, facts), []).append(layer)
        for node in facts.standard("Softmax"):
            first = _scores(node.inputs[0], by_output)
            if first is None or not first.quantized or first.left.constant or first.right.constant:
                continue
            for second in readers.get(node.outputs[0], []):
                if second.left.dequantizer is None and second.right.dequantizer is not None:
                    yield Place(node, f"softmax is not quantized in front of {second.node.name!r}", str(node.outputs[0].name))
            shape = first.shapes[0]
            if shape is not None and shape and shape[-1] is not None and shape[-1] > _MAX_HEAD:
                yield Place(first.node, f"heads of {shape[-1]} values")


def _before_pair(value: ir.Value, facts: Facts) -> ir.Value:
    """What `value` was before Q/DQ and casts."""
    at = value
    while (node := at.producer()) is not None and (node in facts.quantizers or node.op_type == "Cast") and node.inputs and node.inputs[0] is not None:
        at = node.inputs[0]
    return at


def _scores(value: ir.Value | None, by_output: dict[ir.Value, Layer]) -> Layer | None:
    """The product that softmax is taken of, through scaling and masking."""
    at = value
    for _ in range(8):
        if at is None or at in by_output:
            break
        node = at.producer()
        if node is None or node.op_type not in _SCALING:
            return None
        at = next((v for v in node.inputs if v is not None and v.producer() is not None and v.producer().op_type in {*_SCALING, "MatMul"}), None)  # type: ignore[union-attr]  # asked just before
    return by_output.get(at) if at is not None else None
