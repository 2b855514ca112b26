"""The public functions: what `import quant` offers. Each gives a document, or a folder with documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from quant.core.cache_folder import cache_folder
from quant.core.documents import Verdict
from quant.core.table import CalibrationTable
from quant.engine.auditing import Audited, audit
from quant.engine.bind import Bound, bind
from quant.engine.cache import StageCache
from quant.engine.candidates import Workshop, metric_values
from quant.engine.inspection import Inspection, inspect
from quant.engine.ladder import ladder
from quant.engine.prepare import prepare
from quant.engine.run import Run, no_exit, planned_jobs, run
from quant.errors import QuantError
from quant.recipe.load import LoadedRecipe, load_recipe
from quant.report.compare import Comparison, compare
from quant.report.document import Report
from quant.report.ladder import Ladder
from quant.report.load import load_report

__all__ = [
    "Audited",
    "CalibrationTable",
    "Comparison",
    "Inspection",
    "Ladder",
    "LoadedRecipe",
    "QuantError",
    "Report",
    "Run",
    "Verdict",
    "audit",
    "calibrate",
    "compare",
    "evaluate",
    "inspect",
    "ladder",
    "load_recipe",
    "load_report",
    "run",
]


@contextmanager
def _workshop(recipe: Path | str, overrides: Sequence[str], *, trust_code: bool) -> Iterator[tuple[Bound, Workshop]]:
    """The bound recipe, with model and data brought in and checked."""
    loaded = load_recipe(Path(recipe), overrides)
    with no_exit(loaded.where(())):
        bound = bind(loaded, trust_code=trust_code)
        cache = StageCache(cache_folder() / "stages")
        workshop = Workshop(bound, prepare(bound, cache, trust_code=trust_code), cache)
        workshop.check()
        yield bound, workshop


def calibrate(recipe: Path | str, *, overrides: Sequence[str] = (), trust_code: bool = False) -> CalibrationTable:
    """The calibration table of a recipe: statistics of every tensor that its schemes quantize, from one pass over its data.

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used, or no scheme needs calibration.
    """
    with _workshop(recipe, overrides, trust_code=trust_code) as (bound, workshop):
        jobs = planned_jobs(workshop)
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
    with _workshop(recipe, overrides, trust_code=trust_code) as (bound, workshop):
        return metric_values(bound, workshop.evaluate_baseline().predictions)
