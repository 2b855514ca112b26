"""What products with weights of 4 bits are multiplied in, where the target leaves that to what is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from quant.core.documents import PrecisionPlan
from quant.graph.planning import with_more_reasons
from quant.graph.runtime import Runtime
from quant.stages.agree import feeds_of
from quant.stages.levels import MOST_SAMPLES, settle_levels
from quant.targets import Target

if TYPE_CHECKING:
    from quant.engine.candidates import Workshop


def settled(workshop: Workshop, engine: Target, model: ir.Model, plan: PrecisionPlan) -> PrecisionPlan:
    """`plan`, with what is to be said of layers of `model` that are multiplied in FP32 from here on; nothing where no calibration data tells."""
    if not _is_open(workshop, engine, plan):
        return plan
    recipe, prepared = workshop.bound.loaded.recipe, workshop.prepared
    run = Runtime(prepared.path).run
    feeds = feeds_of(prepared.data.roles["calibration"], prepared.feeding(workshop.bound, recipe.calibration.batch_size), run, most=MOST_SAMPLES)
    return with_more_reasons(plan, settle_levels(model, feeds, run))


def settling_key(workshop: Workshop, engine: Target, plan: PrecisionPlan) -> list[Any] | None:
    """What `settled` depends on besides the quantized graph; None where it does nothing."""
    calibration = workshop.bound.loaded.recipe.calibration
    return [workshop.prepared.data.roles["calibration"].digest, calibration.batch_size] if _is_open(workshop, engine, plan) else None


def _is_open(workshop: Workshop, engine: Target, plan: PrecisionPlan) -> bool:
    form = engine.dialect.int4
    asked = form is not None and form.products == "matmulnbits" and form.accuracy_level is None
    return asked and "calibration" in workshop.prepared.data.roles and any(choice.format == "int4" for choice in plan.layers)
