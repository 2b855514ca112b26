"""`int8-qat`: static INT8 whose weights and scales are trained with the rounding in place (quantization-aware training)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import onnx_ir as ir
from pydantic import Field

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.core.formats.narrowed import narrowed
from quant.graph.layers import Layer
from quant.graph.planning import choose_layers, planned
from quant.graph.qdq import Placed, freeze_qdq, place_qdq
from quant.graph.static import static_needs, static_obstacle
from quant.schemes import SCHEMES, Evidence, Needs, SchemeOptions
from quant.twin.training.options import TrainingOptions

_BITS = 8


@SCHEMES.add
class Int8Qat:
    """Static INT8, trained: the graph that the target wants becomes a module, quantizers included, and learns to live with its rounding."""

    kind: ClassVar[str] = "int8-qat"
    base: ClassVar[str] = "int8"
    data: ClassVar[Literal["none", "calibration", "training"]] = "training"

    class Options(SchemeOptions, TrainingOptions):
        """Options of `int8-qat`."""

        per_channel: bool = True
        """One scale for each output channel of a weight; off: one for the whole weight."""
        products: bool = True
        """Also quantize products of two activations (attention)."""
        bits: int = Field(_BITS, ge=2, le=_BITS)
        """Fewer than 8: codes of so few bits in INT8 tensors, for studies; no engine is faster for it."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def study(self) -> str | None:
        """Why no engine is faster for what this makes; None when one may be."""
        bits = self.options.bits
        return f"codes of {bits} bits lie in INT8 tensors: no engine is faster for them" if bits < _BITS else None

    def plan(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect) -> PrecisionPlan:
        """INT8 for every layer that the target has an integer kernel for, if the graph can be trained at all."""
        from quant.twin.conversion import untrainable  # noqa: PLC0415 - heavy

        whole = untrainable(model)
        how = self.options

        def obstacle(layer: Layer) -> str | None:
            return whole or static_obstacle(layer, dialect, products=how.products, kernel="integer")

        return choose_layers(self.kind, self.base, layers, include=how.include, exclude=how.exclude, obstacle=obstacle)

    def needs(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> Needs:
        """Ranges of all tensors that get Q/DQ, which training starts from, and what it trains on."""
        found = static_needs(model, planned(model, plan), self.on_its_grids(dialect), correct_bias=False)
        return Needs(ranges=found.ranges, known=found.known, training=self.options.epochs > 0 and bool(plan.quantized))

    def apply(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> PrecisionPlan:
        """Write Q/DQ around every planned layer, train what stands between them, and write the weights as codes.

        Without `evidence.training` the graph is that which training would start from.
        """
        how = self.options
        placed = self.place(model, plan, evidence, dialect)
        if evidence.training is not None and how.epochs and plan.quantized:
            from quant.twin.training.train import train  # noqa: PLC0415 - heavy

            evidence.training.tell(train(model, placed, how, evidence.training))
        freeze_qdq(model, placed)
        return plan

    def place(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> Placed:
        """Write Q/DQ around every planned layer, and leave the weights in float."""
        return place_qdq(model, planned(model, plan), evidence.ranges, self.on_its_grids(dialect), per_channel=self.options.per_channel)

    def on_its_grids(self, dialect: Dialect) -> Dialect:
        """`dialect` on grids of as many bits as asked for."""
        bits, left = self.options.bits, dialect.left_operands
        return replace(
            dialect,
            activations=narrowed(dialect.activations, bits),
            operands=narrowed(dialect.operands, bits),
            left_operands=None if left is None else narrowed(left, bits),
            weights=narrowed(dialect.weights, bits),
        )
