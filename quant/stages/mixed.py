"""Applying a plan that gives different formats to different layers: one scheme after the other, on one graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.core.formats import GRIDS, Range
from quant.core.protocols import Calibrator
from quant.core.table import CalibrationTable
from quant.graph.body import write_body
from quant.graph.importing.opset import raise_opset
from quant.graph.model import read_model
from quant.schemes import Scheme
from quant.stages.apply import gather


def apply_mixed(
    path: Path,
    schemes: Mapping[str, Scheme],
    *,
    plan: PrecisionPlan,
    table: CalibrationTable,
    calibrator: Calibrator,
    dialect: Dialect,
    given: Mapping[str, Range] | None = None,
) -> tuple[ir.Model, PrecisionPlan, dict[str, Range]]:
    """Quantize the model in `path` by a plan with several formats.

    Args:
        path: The FP32 model.
        schemes: Format -> the scheme that writes it, for every format of fewer bits in `plan`.
        plan: What each layer runs in.
        table: Statistics that all of the schemes need (see `Scheme.needs` of `plan.part(format)`).
        calibrator: How ranges are chosen.
        dialect: The form of graph that the target wants.
        given: Tensor -> range that was chosen already.

    Returns:
        The quantized graph, the plan as it was carried out, and every range that was chosen for a tensor.

    Raises:
        CalibrationError: A range cannot be had.
    """
    model = raise_opset(read_model(path), max((dialect.opset, *(GRIDS[name].encoding.opset for name in schemes))))
    parts = {name: plan.part(name) for name in schemes}
    # Quantizers of activations come last: they give tensors new names, by which others would not find their statistics.
    order = sorted(schemes, key=lambda name: bool(schemes[name].needs(model, parts[name], dialect).ranges))
    found: dict[str, Range] = {}
    carried_out = {choice.layer: choice for choice in plan.layers}
    for name in order:
        how, part = schemes[name], parts[name]
        evidence, chosen = gather(model, how, plan=part, table=table, calibrator=calibrator, dialect=dialect, given=given or {})
        found |= chosen
        done = schemes[name].apply(model, parts[name], evidence, dialect)
        own = set(parts[name].quantized)
        carried_out |= {choice.layer: choice for choice in done.layers if choice.layer in own}
    whole = PrecisionPlan(scheme=plan.scheme, base=plan.base, layers=tuple(carried_out.values()))
    return model, write_body(model, whole, table.magnitudes, dialect.body), found
