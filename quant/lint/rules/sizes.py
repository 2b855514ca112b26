"""Q28: layers too small, or of a shape, for integer kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts
from quant.lint.layers import Layer
from quant.lint.values import MATRIX, integer

_LEAST = 16
_MULTIPLE = 8
_FIRST_LAYER = 4
_FP8_KERNEL_AREA = 32


@RULES.add
class UnfitSize(Rule):
    """Quantized layers that gain nothing, or find no kernel."""

    kind: ClassVar[str] = "Q28"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "the layer's size does not suit 8-bit kernels"
    text: ClassVar[str] = "Could not find any implementation for node | QDQ fusion disabled for group convolution"
    why: ClassVar[str] = (
        "Tensor cores work on 16 channels at a time. Below that, for vectors, and for odd groups, codes cost more than they save, or there is no kernel."
    )
    fix: ClassVar[str] = "Leave such layers in floating point."
    observed: ClassVar[str] = "Small and grouped convolutions and small products ran in INT8, padded. FP8 kernels of 7x7 ran in FP16."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Layers with both operands quantized whose fixed sizes are small or odd."""
        for layer in facts.layers:
            if layer.quantized:
                detail = _convolution(layer) if layer.convolves else _product(layer)
                if detail:
                    yield Place(layer.node, detail)


def _convolution(layer: Layer) -> str:
    kernel = layer.shapes[1]
    if kernel is None or len(kernel) <= MATRIX or None in kernel:
        return ""
    sizes = [int(d or 0) for d in kernel]
    groups = integer(layer.node, "group", 1)
    deconvolves = layer.node.op_type == "ConvTranspose"
    per_group = sizes[0] // max(groups, 1) if deconvolves else sizes[1]
    inputs, outputs = per_group * groups, sizes[1] * groups if deconvolves else sizes[0]
    area = int(np.prod(sizes[2:]))
    if layer.right.codes == ir.DataType.FLOAT8E4M3FN:
        if area > _FP8_KERNEL_AREA:
            return f"an FP8 kernel of {'x'.join(map(str, sizes[2:]))}"
        return f"an FP8 convolution of {inputs} to {outputs} channels" if min(inputs, outputs) <= _LEAST else ""
    if groups > 1 and per_group & (per_group - 1):
        return f"{per_group} channels in each of {groups} groups, which is no power of two"
    narrow = [c for c in (inputs, outputs) if c < _LEAST and c % _MULTIPLE]
    return f"{inputs} to {outputs} channels" if narrow and (inputs > _FIRST_LAYER or outputs in narrow) else ""


def _product(layer: Layer) -> str:
    left, right = layer.shapes
    if layer.node.op_type == "Gemm":
        left = left[::-1] if left is not None and integer(layer.node, "transA", 0) else left
        right = right[::-1] if right is not None and integer(layer.node, "transB", 0) else right
    if right is None or len(right) < MATRIX:
        return ""
    rows = left[-2] if left is not None and len(left) >= MATRIX else None
    flat = left is not None and len(left) > MATRIX and layer.right.constant and any(d != 1 for d in left[:-2])  # rows of all leading axes count
    inner, columns = right[-2], right[-1]
    if columns == 1 or (rows == 1 and not flat):
        return "a product with a vector"
    return f"{inner} to {columns} channels" if min(inner or _LEAST, columns or _LEAST) < _LEAST else ""
