"""The public functions: what `import quant` offers. Each gives a document, or a folder with documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from quant.core.arguments import with_checked_arguments
from quant.core.cache_folder import cache_folder
from quant.core.documents import Artifact, Verdict
from quant.core.sensitivity import SensitivityProfile
from quant.core.table import CalibrationTable
from quant.engine.auditing import Audited, audit
from quant.engine.bind import Bound, bind
from quant.engine.cache import StageCache
from quant.engine.candidates import Workshop, metric_values
from quant.engine.evaluation import Evaluation
from quant.engine.exporting import export_candidate
from quant.engine.inspection import Inspection, inspect
from quant.engine.ladder import ladder
from quant.engine.loading import load_model
from quant.engine.mixing.binding import with_plan
from quant.engine.mixing.exploring import Planned, plan_of, profile_of
from quant.engine.mixing.repricing import repriced
from quant.engine.modelopt import FromModelOpt, from_modelopt
from quant.engine.own_loop import trainable_module
from quant.engine.prepare import prepare
from quant.engine.run import Run, no_exit, planned_jobs, run
from quant.errors import QuantError
from quant.recipe.load import LoadedRecipe, load_recipe
from quant.report.compare import Comparison, compare
from quant.report.document import Report
from quant.report.ladder import Ladder
from quant.report.load import load_report
from quant.validation.findings import Validation
from quant.validation.signing import sign
from quant.validation.validate import validate
from quant.validation.verify import Verification, verify

if TYPE_CHECKING:
    import torch

    from quant.twin.training.module import QatModule

__all__ = [
    "Artifact",
    "Audited",
    "CalibrationTable",
    "Comparison",
    "Evaluation",
    "FromModelOpt",
    "Inspection",
    "Ladder",
    "LoadedRecipe",
    "Planned",
    "QuantError",
    "Report",
    "Run",
    "SensitivityProfile",
    "Validation",
    "Verdict",
    "Verification",
    "apply",
    "audit",
    "calibrate",
    "compare",
    "convert",
    "evaluate",
    "export",
    "from_modelopt",
    "inspect",
    "ladder",
    "load_model",
    "load_recipe",
    "load_report",
    "plan",
    "prepare_qat",
    "profile",
    "run",
    "sign",
    "validate",
    "verify",
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


@with_checked_arguments
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


@with_checked_arguments
def evaluate(recipe: Path | str, *, overrides: Sequence[str] = (), trust_code: bool = False) -> Evaluation:
    """Name -> value of every metric of a recipe, for its FP32 model on its evaluation samples.

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used.
    """
    with _workshop(recipe, overrides, trust_code=trust_code) as (bound, workshop):
        found = metric_values(bound, workshop.evaluate_baseline().predictions)
        samples = len(workshop.prepared.data.roles["evaluation"])
    return Evaluation(f"{bound.loaded.recipe.name} in fp32", samples, found, {name: metric.unit for name, metric in bound.metrics.items()})


@with_checked_arguments
def export(
    recipe: Path | str,
    *,
    output: Path | str,
    scheme: str | None = None,
    target: str | None = None,
    overrides: Sequence[str] = (),
    trust_code: bool = False,
) -> Artifact:
    """Quantize by one scheme of a recipe for one of its targets, and write the artifact: the very one that `run` would make, without a verdict.

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        output: Folder for the artifact, with its plan beside it (`plan.json`); made if missing.
        scheme: Which of the recipe's schemes; the first that finds something to quantize when not given.
        target: Which of the recipe's targets; the first when not given.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used, or the engine refuses the graph.
    """
    with _workshop(recipe, overrides, trust_code=trust_code) as (_, workshop):
        return export_candidate(workshop, Path(output), scheme=scheme, target=target)


@with_checked_arguments
def profile(recipe: Path | str, *, target: str | None = None, overrides: Sequence[str] = (), trust_code: bool = False) -> SensitivityProfile:
    """What each layer does to the outputs in each format that the recipe's `plan` mixes (by default: those of its schemes).

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        target: Title of one of its targets, whose dialect says what a format means; the first when not given.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used, or no format is left to mix.
    """
    with _workshop(recipe, with_plan(recipe, overrides), trust_code=trust_code) as (_, workshop):
        return profile_of(workshop, target)


@with_checked_arguments
def plan(
    recipe: Path | str,
    *,
    target: str | None = None,
    profile: Path | str | None = None,
    like: Path | str | None = None,
    overrides: Sequence[str] = (),
    trust_code: bool = False,
) -> Planned:
    """The cheapest plan that mixes formats and passes on the recipe's search samples; evaluation samples are not looked at.

    With a profile that was saved no plan is measured: it is the cheapest by prediction, priced for the target.

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        target: Title of one of its targets; the first when not given.
        profile: What `profile` found and was saved, for this target or for one that writes the same codes.
        like: With a profile: a plan whose predicted error is the most that is allowed; else `plan.max_error` or `plan.within` of the recipe says that.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used, no format is left to mix, or the profile is of something else.
    """
    if profile is None and like is not None:
        raise QuantError("`like` is for plans out of a profile", where=str(like), hint="give the profile, too")
    for path in (profile, like):
        if path is not None and not Path(path).is_file():
            raise QuantError("no such file", where=str(path))
    with _workshop(recipe, with_plan(recipe, overrides), trust_code=trust_code) as (_, workshop):
        if profile is None:
            return plan_of(workshop, target)
        return repriced(workshop, target, Path(profile), like=None if like is None else Path(like))


@with_checked_arguments
def apply(recipe: Path | str, *, plan: Path | str, output: Path | str, overrides: Sequence[str] = (), trust_code: bool = False) -> Run:
    """Carry out a plan that `plan` has written, or a person has edited: quantize, export, audit, evaluate, gate, report.

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        plan: The plan.
        output: Folder for artifacts and reports; made if missing.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The plan is of another model or names what is not there, or the recipe cannot be run.
    """
    path = Path(plan)
    if not path.is_file():
        raise QuantError("no such plan", where=str(path), hint="`quant plan RECIPE --output FILE` writes one")
    told = f"plan.file={json.dumps(str(path.resolve()), ensure_ascii=False)}"
    return run(recipe, output=output, overrides=[*overrides, told], trust_code=trust_code)


@with_checked_arguments
def prepare_qat(
    model: torch.nn.Module | None,
    recipe: Path | str,
    *,
    scheme: str | None = None,
    target: str | None = None,
    overrides: Sequence[str] = (),
    trust_code: bool = False,
) -> QatModule:
    """A torch module that computes `model` as a target will run it quantized, to be trained in a loop of your own; then `convert` it.

    Ranges come from the recipe's calibration data. Loss, optimizer and data of the loop are yours; what the recipe says of training does
    not count, but for `learn_scales` and `bits`.

    Args:
        model: The FP32 model, which stays as it is; None: the one that the recipe names.
        recipe: A recipe file, or the name of a shipped recipe, with a scheme that trains (`int8-qat`).
        scheme: Which of the recipe's schemes; the first that trains when not given.
        target: Which of the recipe's targets; the first when not given.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used, or the model has no form that can be trained.
    """
    loaded = load_recipe(Path(recipe), overrides)
    with no_exit(loaded.where(())):
        bound = bind(loaded, trust_code=trust_code)
        return trainable_module(bound, model, StageCache(cache_folder() / "stages"), scheme=scheme, target=target, trust_code=trust_code)


@with_checked_arguments
def convert(module: QatModule, *, output: Path | str) -> Artifact:
    """Write a module of `prepare_qat`, as it is now, as the artifact of its target: `quant audit` looks into it like any other.

    Args:
        module: The module.
        output: Folder for the artifact; made if missing.

    Raises:
        QuantError: The engine refuses the graph, or the folder cannot be written.
    """
    if not hasattr(module, "finish"):
        raise QuantError(f"`module` is what `prepare_qat` gives, got a {type(module).__name__}", where="convert", hint="train that very module, and give it")
    return module.finish(Path(output))
