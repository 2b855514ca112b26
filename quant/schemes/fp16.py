"""`fp16`: half-precision weights and activations; inputs and outputs stay FP32, and so does what would overflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import onnx_ir as ir
from pydantic import Field

from quant.core.dialect import Dialect
from quant.core.documents import LayerChoice, PrecisionPlan
from quant.graph.fp16 import FP16_MAX, keep_reasons, write_fp16
from quant.graph.layers import Layer, find_layers
from quant.graph.planning import choose_layers
from quant.schemes import SCHEMES, Evidence, Needs, SchemeOptions


@SCHEMES.add
class Fp16:
    """FP16: half the bytes; layers whose measured values come near 65,504 are kept in FP32."""

    kind: ClassVar[str] = "fp16"
    base: ClassVar[str] = "fp16"
    data: ClassVar[Literal["none", "calibration", "training"]] = "calibration"

    class Options(SchemeOptions):
        """Options of `fp16`."""

        headroom: float = Field(2.0, ge=1.0)
        """A tensor is kept in FP32 when `headroom` times its largest calibrated magnitude exceeds 65,504."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def plan(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect) -> PrecisionPlan:
        """FP16 for every layer; measured overflow is left out when the plan is applied."""
        del model, dialect
        return choose_layers(self.kind, self.base, layers, include=self.options.include, exclude=self.options.exclude, obstacle=lambda _layer: None)

    def needs(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> Needs:
        """The largest magnitude of every float tensor."""
        del model, plan, dialect
        return Needs(magnitudes=True)

    def apply(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> PrecisionPlan:
        """Cast the graph to FP16, but for excluded layers and what would overflow."""
        del dialect
        excluded = {choice.layer for choice in plan.exclusions}
        keep = keep_reasons(model, evidence.magnitudes, limit=FP16_MAX / self.options.headroom)
        nodes = {layer.name: layer.node for layer in find_layers(model)}
        choices = tuple(
            LayerChoice(layer=c.layer, op=c.op, format="fp32", reason=keep[nodes[c.layer]]) if c.layer not in excluded and nodes[c.layer] in keep else c
            for c in plan.layers
        )
        write_fp16(model, keep=set(keep) | {nodes[name] for name in excluded})
        return PrecisionPlan(scheme=plan.scheme, base=plan.base, layers=choices)
