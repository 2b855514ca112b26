"""`int8-dynamic`: weights in INT8 per output channel, activations quantized while running, from each input's own range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.graph.blocks.matrices import outputs_obstacle
from quant.graph.dynamic import dynamic_obstacle, write_dynamic
from quant.graph.groups import group_obstacle, write_grouped
from quant.graph.layers import Layer
from quant.graph.planning import choose_layers, planned
from quant.schemes import SCHEMES, Evidence, Needs, SchemeOptions


@SCHEMES.add
class Int8Dynamic:
    """Dynamic INT8: needs no data; the engine finds each activation's range anew at every run."""

    kind: ClassVar[str] = "int8-dynamic"
    base: ClassVar[str] = "int8"
    data: ClassVar[Literal["none", "calibration", "training"]] = "none"

    class Options(SchemeOptions):
        """Options of `int8-dynamic`."""

        per_channel: bool = True
        """One scale for each output channel of a weight; off: one for the whole weight."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def plan(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect) -> PrecisionPlan:
        """INT8 for every matrix product with a weight."""
        del model
        return choose_layers(
            self.kind, self.base, layers, include=self.options.include, exclude=self.options.exclude, obstacle=lambda layer: self._obstacle(layer, dialect)
        )

    @staticmethod
    def _obstacle(layer: Layer, dialect: Dialect) -> str | None:
        if layer.op not in dialect.dynamic:
            return f"the target has no fast kernel for {layer.op} with ranges found while running"
        return (
            dynamic_obstacle(layer)
            or outputs_obstacle(layer, dialect.dynamic_outputs)
            or (group_obstacle(layer, dialect.dynamic_group) if dialect.dynamic_group else None)
        )

    def needs(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> Needs:
        """Nothing: ranges are found while running."""
        del model, plan, dialect
        return Needs()

    def apply(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> PrecisionPlan:
        """Rewrite every planned layer: quantize -> integer product -> scale, or as the engine will do it by itself."""
        del evidence
        write = write_grouped if dialect.dynamic_group else write_dynamic
        write(model, planned(model, plan), dialect, per_channel=self.options.per_channel)
        return plan
