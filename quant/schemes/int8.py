"""`int8`: static INT8. Weights per output channel and activations per tensor, with ranges from calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.graph.layers import Layer
from quant.graph.planning import choose_layers, planned
from quant.graph.static import static_needs, static_obstacle, write_static
from quant.schemes import SCHEMES, Evidence, Needs, SchemeOptions


@SCHEMES.add
class Int8:
    """Static INT8: the engine multiplies integers; every range is fixed before it runs."""

    kind: ClassVar[str] = "int8"
    base: ClassVar[str] = "int8"
    data: ClassVar[Literal["none", "calibration", "training"]] = "calibration"

    class Options(SchemeOptions):
        """Options of `int8`."""

        per_channel: bool = True
        """One scale for each output channel of a weight; off: one for the whole weight."""
        products: bool = True
        """Also quantize products of two activations (attention)."""
        correct_bias: bool = True
        """Take back, in the biases, what rounding the weights adds to the mean of each output channel."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def plan(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect) -> PrecisionPlan:
        """INT8 for every layer that the target has an integer kernel for."""
        del model
        return choose_layers(
            self.kind, self.base, layers, include=self.options.include, exclude=self.options.exclude, obstacle=lambda layer: self._obstacle(layer, dialect)
        )

    def _obstacle(self, layer: Layer, dialect: Dialect) -> str | None:
        return static_obstacle(layer, dialect, products=self.options.products, kernel="integer")

    def needs(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> Needs:
        """Ranges of all tensors that get Q/DQ, and the means of what weights multiply."""
        found = static_needs(model, planned(model, plan), dialect, correct_bias=self.options.correct_bias)
        return Needs(ranges=found.ranges, known=found.known, means=found.means)

    def apply(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> PrecisionPlan:
        """Write Q/DQ around every planned layer, and correct the biases."""
        how = self.options
        write_static(
            model,
            planned(model, plan),
            dialect,
            ranges=evidence.ranges,
            means=evidence.means,
            per_channel=how.per_channel,
            correct_bias=how.correct_bias,
        )
        return plan
