"""The public functions: what `import quant` offers. Each gives a document, or a folder with documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quant.core.cache_folder import cache_folder
from quant.core.documents import Verdict
from quant.core.table import CalibrationTable
from quant.engine.bind import Bound, bind
from quant.engine.cache import StageCache
from quant.engine.candidates import Workshop, metric_values
from quant.engine.inspection import Inspection, inspect
from quant.engine.prepare import prepare
from quant.engine.run import Run, planned_jobs, run
from quant.errors import QuantError
from quant.recipe.load import LoadedRecipe, load_recipe
from quant.report.compare import Comparison, compare
from quant.report.document import Report
from quant.report.load import load_report

__all__ = [
    "CalibrationTable",
    "Comparison",
    "Inspection",
    "LoadedRecipe",
    "QuantError",
    "Report",
    "Run",
    "Verdict",
    "calibrate",
    "compare",
    "evaluate",
    "inspect",
    "load_recipe",
    "load_report",
    "run",
]


def _workshop(recipe: Path | str, overrides: Sequence[str], *, trust_code: bool) -> tuple[Bound, Workshop]:
    bound = bind(load_recipe(Path(recipe), overrides), trust_code=trust_code)
    cache = StageCache(cache_folder() / "stages")
    return bound, Workshop(bound, prepare(bound, cache, trust_code=trust_code), cache)


def calibrate(recipe: Path | str, *, overrides: Sequence[str] = (), trust_code: bool = False) -> CalibrationTable:
    """The calibration table of a recipe: statistics of every tensor that its schemes quantize, from one pass over its data.

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used, or no scheme needs calibration.
    """
    bound, workshop = _workshop(recipe, overrides, trust_code=trust_code)
    jobs = planned_jobs(workshop)
    workshop.check()
    table = workshop.calibrate([(bound.schemes[j.scheme], bound.targets[j.target], j.plan) for j in jobs if j.plan is not None])
    if table is None:
        raise QuantError("none of the recipe's schemes needs calibration", where=bound.loaded.where(("schemes",)), hint="`int8` and `fp16` do")
    return table


def evaluate(recipe: Path | str, *, overrides: Sequence[str] = (), trust_code: bool = False) -> dict[str, float]:
    """Name -> value of every metric of a recipe, for its FP32 model on its evaluation samples.

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used.
    """
    bound, workshop = _workshop(recipe, overrides, trust_code=trust_code)
    workshop.check()
    return metric_values(bound, workshop.evaluate_baseline().predictions)
