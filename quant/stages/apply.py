"""apply: model + table + plan -> quantized graph, in a target's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from calibrators.ranges import ranges
from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.core.formats import GRIDS, Range
from quant.core.parallel import worker_count
from quant.core.protocols import Calibrator
from quant.core.table import CalibrationTable
from quant.graph.body import write_body
from quant.graph.importing.opset import raise_opset
from quant.graph.model import read_model
from quant.schemes import Evidence, Scheme
from quant.twin.training.material import Material


def apply(
    path: Path,
    scheme: Scheme,
    *,
    plan: PrecisionPlan,
    table: CalibrationTable,
    calibrator: Calibrator,
    dialect: Dialect,
    given: Mapping[str, Range] | None = None,
    training: Material | None = None,
) -> tuple[ir.Model, PrecisionPlan, dict[str, Range]]:
    """Quantize the model in `path` by `plan`.

    Args:
        path: The FP32 model.
        scheme: How it is quantized.
        plan: What each layer runs in.
        table: Statistics of its activations.
        calibrator: How ranges are chosen from them.
        dialect: The form of graph that the target wants.
        given: Tensor -> range that was chosen already.
        training: What a scheme that trains is given.

    Returns:
        The quantized graph, the plan as it was carried out, and every range that was chosen for a tensor.

    Raises:
        CalibrationError: A range cannot be had.
    """
    model = opened(path, scheme, dialect)
    evidence, found = gather(model, scheme, plan=plan, table=table, calibrator=calibrator, dialect=dialect, given=given or {})
    done = scheme.apply(model, plan, replace(evidence, training=training), dialect)
    if scheme.base in GRIDS:
        done = write_body(model, done, table.magnitudes, dialect.body)
    return model, done, found


def opened(path: Path, scheme: Scheme, dialect: Dialect) -> ir.Model:
    """The model in `path`, in an operator set in which `scheme` can be written for a target."""
    grid_of_base = GRIDS.get(scheme.base)
    return raise_opset(read_model(path), max(dialect.opset, grid_of_base.encoding.opset if grid_of_base is not None else 0))


def gather(
    model: ir.Model, scheme: Scheme, *, plan: PrecisionPlan, table: CalibrationTable, calibrator: Calibrator, dialect: Dialect, given: Mapping[str, Range]
) -> tuple[Evidence, dict[str, Range]]:
    """What `scheme` is to know of activations, and every range that was chosen.

    Raises:
        CalibrationError: A range cannot be had.
    """
    needs = scheme.needs(model, plan, dialect)
    found: dict[str, Range] = {}
    for grid in dict.fromkeys(needs.ranges.values()):
        found |= {name: chosen for name, chosen in given.items() if needs.ranges.get(name) == grid}
        wanted = {name: table.statistics[name] for name, g in needs.ranges.items() if g == grid and name not in found}
        found |= ranges(wanted, calibrator, grid, workers=worker_count())
    return Evidence({**needs.known, **found}, table.magnitudes, table.means, table.moments), found
