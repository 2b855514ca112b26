"""`int8`: static INT8. Weights per output channel and activations per tensor, with ranges from calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.graph.bias import correct_biases, correctable, give_biases
from quant.graph.layers import Layer
from quant.graph.planning import choose_layers, planned
from quant.graph.points import insertion_points
from quant.graph.qdq import bias_obstacle, write_int8
from quant.schemes import SCHEMES, Evidence, Needs, SchemeOptions

_MATRIX = 2


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
        if layer.op not in dialect.integer:
            return f"the target has no integer kernel for {layer.op}"
        if layer.weight is None and layer.op != "MatMul":
            return f"the weight of this {layer.op} is computed"
        if layer.weight is None and not self.options.products:
            return "products of two activations are left out (`products: false`)"
        if layer.weight == 0:
            return "the weight is the left operand, whose channels no engine scales"
        shape = layer.weight_shape
        if shape is not None and len(shape) < _MATRIX:
            return "the weight is a vector"
        return bias_obstacle(layer, dialect)

    def needs(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> Needs:
        """Ranges of all tensors that get Q/DQ, and the means of what weights multiply."""
        layers = planned(model, plan)
        before = correctable(layers) if self.options.correct_bias else {}
        return Needs(ranges=insertion_points(model, layers, dialect), means=frozenset(was.source for was in before.values()))

    def apply(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> PrecisionPlan:
        """Write Q/DQ around every planned layer, and correct the biases."""
        layers = planned(model, plan)
        before = correctable(layers) if self.options.correct_bias else {}
        if self.options.correct_bias:
            give_biases(model.graph, layers)
        write_int8(model, layers, evidence.ranges, dialect, per_channel=self.options.per_channel)
        correct_biases(model, before, evidence.means)
        return plan
