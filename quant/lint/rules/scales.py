"""Q03, Q04, Q05, Q07: scales that are no scales, or not as many as there are channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts
from quant.lint.values import floats

_SHOWN = 3
_HALF_SUBNORMAL = 2.0**-24
_FLOAT_NORMAL = float(np.finfo(np.float32).tiny)


def _shown(values: np.ndarray) -> str:
    return ", ".join(f"{v:g}" for v in values[:_SHOWN]) + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")


@RULES.add
class ScaleNotPositive(Rule):
    """Scales of zero, below zero, or not a number."""

    kind: ClassVar[str] = "Q03"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the scale is not positive"
    text: ClassVar[str] = "Assertion failed: (scaleAllPositive || allowNegativeScale): Scale coefficients must all be positive"
    why: ClassVar[str] = "A scale is the size of one step; zero comes from channels or activations that were always zero when calibrating."
    fix: ClassVar[str] = "Give channels of zeros a small positive scale, or calibrate with data that reaches them."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Stored scales that are zero, negative or NaN."""
        for q in facts.quantizers.values():
            if q.scales is None or not q.scales.size:
                continue
            values = floats(q.scales).ravel()
            bad = values[~(values > 0)]
            if bad.size:
                yield Place(q.node, f"{bad.size} of {values.size} scales: {_shown(bad)}", str(q.data.name))


@RULES.add
class ScaleOutOfReach(Rule):
    """Scales that are positive, and still no use."""

    kind: ClassVar[str] = "Q04"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "the scale is infinite, or too small for its type"
    why: ClassVar[str] = "TensorRT takes any positive scale. An infinite one makes every value 0 or NaN; a denormal one is flushed to zero on the way."
    fix: ClassVar[str] = "Look at the range that it comes from: a tensor without values, or one with an outlier of 1e38. Keep FP16 scales above 6e-8."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Infinite scales, FP32 denormals, and scales near or below FP16's last step where the scale or its partner is FP16."""
        for q in facts.quantizers.values():
            if q.scales is None or q.scales.size == 0:
                continue
            values = floats(q.scales).ravel()
            half = facts.types.get(q.scale) == ir.DataType.FLOAT16
            least = _HALF_SUBNORMAL if half else _FLOAT_NORMAL
            bad = values[np.isinf(values) | ((values > 0) & ((values <= least) if half else (values < least)))]
            if bad.size:
                yield Place(q.node, f"{bad.size} of {values.size} scales: {_shown(bad)}", str(q.data.name))


@RULES.add
class ScaleCount(Rule):
    """Not one scale for each channel."""

    kind: ClassVar[str] = "Q05"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "there are not as many scales as channels"
    text: ClassVar[str] = "Assertion failed: K == scaleSize: The number of scales is not equal to the number of output channels."
    why: ClassVar[str] = "Per-channel quantization needs one scale for each slice along `axis` (which is 1 when it is not written)."
    fix: ClassVar[str] = "Write the axis that the scales belong to: 0 for a Conv kernel, 1 for a MatMul weight."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Per-channel scales whose number is not the length of the axis."""
        for q in facts.quantizers.values():
            count = facts.shape(q.scale)
            if q.granularity != "channel" or q.block or q.shape is None or count is None or not count[0]:
                continue
            axis = q.positive_axis
            if axis is None:
                yield Place(q.node, f"axis {q.axis} of a tensor with {len(q.shape)} axes", str(q.data.name))
            elif q.shape[axis] is not None and q.shape[axis] != count[0]:
                yield Place(q.node, f"{count[0]} scales along axis {axis}, which has {q.shape[axis]} channels", str(q.data.name))


@RULES.add
class NoScale(Rule):
    """A scale without values."""

    kind: ClassVar[str] = "Q07"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the scale is empty"
    text: ClassVar[str] = "Assertion failed: scale.count() > 0: Cannot have scale with no coefficients."
    why: ClassVar[str] = "A tensor of no elements was stored where a scale should be."
    fix: ClassVar[str] = "Quantize the tensor again."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Scales with no elements."""
        for q in facts.quantizers.values():
            shape = facts.shape(q.scale)
            if shape is not None and 0 in shape:
                yield Place(q.node, "the scale has no elements", str(q.data.name))
