"""Q08, Q09: scales along the wrong axis, which no integer kernel can use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts


@RULES.add
class ActivationPerChannel(Rule):
    """A scale per channel on something that is not a weight."""

    kind: ClassVar[str] = "Q08"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "an activation has a scale per channel"
    why: ClassVar[str] = "Channels of an activation are summed over; their scales cannot be taken out of the sum. The layer runs in float."
    fix: ClassVar[str] = "Quantize activations per tensor. Large differences between channels can be moved into the weights (smoothing)."
    observed: ClassVar[str] = "Activations of a convolution run in float; a kernel that is computed may have a scale per output channel."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Per-channel quantizers of tensors that depend on an input."""
        for q in facts.quantizers.values():
            behind_another = not q.quantizes and facts.maker(q.data) is not None
            if q.granularity == "channel" and not q.constant and not behind_another:
                yield Place(q.node, f"{(facts.shape(q.scale) or ('?',))[0]} scales along axis {q.axis} of an activation", str(q.data.name))


@RULES.add
class WeightAxis(Rule):
    """A weight's scales lie along an axis that is summed over."""

    kind: ClassVar[str] = "Q09"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "the weight's scales are not along its output channels"
    why: ClassVar[str] = (
        "Only a scale per output channel can be applied after the sum. Along another axis the weight is dequantized first, and the layer runs in float."
    )
    fix: ClassVar[str] = "Use axis 0 for Conv, 1 for ConvTranspose, 1 for MatMul and Gemm (0 for Gemm with transB), and find the scales again."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Per-channel weights whose axis, as it arrives at the layer, is not that of the output channels."""
        for layer in facts.layers:
            source = layer.right.dequantizer
            if source is None or not layer.right.constant or source.granularity != "channel" or source.block:
                continue
            axis, wanted = layer.right.axis_at_layer(), layer.channel_axis()
            if axis is not None and wanted is not None and axis != wanted:
                yield Place(layer.node, f"scales along axis {axis} of the weight, output channels along axis {wanted}", str(source.data.name))
