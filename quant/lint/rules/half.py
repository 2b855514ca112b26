"""T07, T08: what FP16 cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts
from quant.lint.values import optional

_HALF_MAX = 65504.0


@RULES.add
class HalfLayerNorm(Rule):
    """A layer normalization of single operators, in FP16."""

    kind: ClassVar[str] = "T07"
    severity: ClassVar[Severity] = "warning"
    title: ClassVar[str] = "layer normalization is written out in FP16"
    text: ClassVar[str] = "Running layernorm after self-attention with FP16 Reduce or Pow may cause overflow."
    why: ClassVar[str] = "Squares above 65504 become infinite; the operator LayerNormalization keeps its statistics in FP32, single operators do not."
    fix: ClassVar[str] = "Export with operator set 17 or newer, so that LayerNormalization stays one operator, or keep Pow and ReduceMean in FP32."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Means of squares of FP16 values that had their mean taken away (or not, for the root mean square)."""
        for node in facts.standard("ReduceMean"):
            value = node.inputs[0] if node.inputs else None
            square = None if value is None else value.producer()
            if (
                square is None
                or square.op_type not in {"Pow", "Mul"}
                or optional(square, 1) is None
                or facts.types.get(square.outputs[0]) != ir.DataType.FLOAT16
            ):
                continue
            if square.op_type == "Mul" and square.inputs[0] is not square.inputs[1]:
                continue
            if square.op_type == "Pow" and not _is_two(facts, square.inputs[1]):
                continue
            yield Place(node, "the mean of squares is taken in FP16", str(node.outputs[0].name))


def _is_two(facts: Facts, value: ir.Value | None) -> bool:
    power = facts.array(value)
    return power is not None and power.size == 1 and float(power.ravel()[0]) == 2.0  # noqa: PLR2004 - a square


@RULES.add
class ClampedWeights(Rule):
    """Weights that FP16 cannot hold."""

    kind: ClassVar[str] = "T08"
    severity: ClassVar[Severity] = "warning"
    title: ClassVar[str] = "stored FP32 values are outside FP16's range"
    text: ClassVar[str] = "Detected finite FP32 values which would overflow in FP16 and converted them to the closest finite FP16 value."
    why: ClassVar[str] = "Values beyond 65504 are cut off or become infinite when the constant is cast to FP16."
    fix: ClassVar[str] = "Use smaller constants (masks of -65504), or keep the operator in FP32."
    observed: ClassVar[str] = "A Cast of such a constant was built without any message."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Casts to FP16 of stored FP32 values beyond its range."""
        for node in facts.standard("Cast"):
            value = node.inputs[0] if node.inputs else None
            if value is None or facts.types.get(node.outputs[0]) != ir.DataType.FLOAT16 or facts.types.get(value) != ir.DataType.FLOAT:
                continue
            array = facts.array(value)
            beyond = 0 if array is None else int(np.count_nonzero(np.isfinite(array) & (np.abs(array) > _HALF_MAX)))
            if beyond:
                yield Place(node, f"{beyond} values beyond 65504", str(value.name))
