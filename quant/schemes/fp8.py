"""`fp8`: static FP8 (E4M3FN). Weights per output channel and activations per tensor, attention's products among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import onnx_ir as ir
from pydantic import Field

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.graph.layers import Layer
from quant.graph.model import attribute
from quant.graph.planning import choose_layers, planned
from quant.graph.static import static_needs, static_obstacle, write_static
from quant.schemes import SCHEMES, Evidence, Needs, SchemeOptions


@SCHEMES.add
class Fp8:
    """Static FP8: floating-point numbers of 8 bits. Their steps are a share of the value, so that outliers cost small values little."""

    kind: ClassVar[str] = "fp8"
    base: ClassVar[str] = "fp8"
    data: ClassVar[Literal["none", "calibration", "training"]] = "calibration"

    class Options(SchemeOptions):
        """Options of `fp8`."""

        per_channel: bool = True
        """One scale for each output channel of a weight; off: one for the whole weight."""
        products: bool = True
        """Also quantize products of two activations (attention); what comes out of a softmax is written from 0 to 1, whatever was seen."""
        fewest_products: int = Field(32, ge=1)
        """Convolutions whose outputs sum fewer products (those of single channels, those that read a picture) stay as they are: rounding
        does not average out in so short a sum, and such layers take little of the time. 1 takes them all."""
        correct_bias: bool = True
        """Take back, in the biases, what rounding the weights adds to the mean of each output channel."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def on_its_grids(self, dialect: Dialect) -> Dialect:
        """`dialect` in FP8."""
        return dialect.in_fp8

    def plan(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect) -> PrecisionPlan:
        """FP8 for every layer that the target has an FP8 kernel for."""
        del model
        return choose_layers(
            self.kind, self.base, layers, include=self.options.include, exclude=self.options.exclude, obstacle=lambda layer: self._obstacle(layer, dialect)
        )

    def _obstacle(self, layer: Layer, dialect: Dialect) -> str | None:
        if dialect.fp8 is None:
            return "the target does not know FP8"
        obstacle = static_obstacle(layer, dialect.in_fp8, products=self.options.products, kernel="FP8")
        shape = layer.weight_shape
        if obstacle is not None or layer.op not in {"Conv", "ConvTranspose"} or shape is None:
            return obstacle
        taps, limit, least = math.prod(shape[2:]), dialect.fp8.largest_kernel, dialect.fp8.least_channels
        if limit is not None and taps > limit:
            return f"its kernel has {taps} taps, and the target's FP8 convolutions take {limit} at most"
        products = shape[1] * taps
        if products < self.options.fewest_products:
            return f"its outputs sum {products} products each, too few for rounding to FP8 to average out (`fewest_products: {products}` takes it)"
        groups = int(attribute(layer.node, "group", 1))
        channels = min(shape[0], shape[1] * groups)
        return f"it has {channels} channels, and the target's FP8 convolutions want {least} at least" if channels < least else None

    def needs(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> Needs:
        """Ranges of all tensors that get Q/DQ, but for those that are known, and the means of what weights multiply."""
        found = static_needs(model, planned(model, plan), dialect.in_fp8, correct_bias=self.options.correct_bias)
        return Needs(ranges=found.ranges, known=found.known, means=found.means)

    def apply(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> PrecisionPlan:
        """Write Q/DQ around every planned layer, and correct the biases."""
        how = self.options
        write_static(
            model,
            planned(model, plan),
            dialect.in_fp8,
            ranges=evidence.ranges,
            means=evidence.means,
            per_channel=how.per_channel,
            correct_bias=how.correct_bias,
        )
        return plan
