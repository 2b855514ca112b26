"""The section `plan` of a recipe, held to the rest of it before any work starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quant.core.registry import did_you_mean
from quant.errors import RecipeError
from quant.recipe.load import LoadedRecipe, load_recipe
from quant.recipe.schema import PlanSpec
from quant.schemes import Scheme

if TYPE_CHECKING:
    from quant.costs import CostModel
    from quant.sensitivity import Estimator

TITLE = "mixed"
"""What the plan that mixes formats goes by among the candidates."""


@dataclass(frozen=True)
class BoundPlan:
    """The section `plan`, with the plug-ins that it names.

    Args:
        spec: The section.
        schemes: Title -> format, of the schemes whose formats may be mixed; of each format the first that finds something to quantize on a target.
        estimator: How effects are found.
        costs: Where times come from; None: the engine, where it runs here.
        file: A plan to carry out instead of looking for one.
    """

    spec: PlanSpec
    schemes: Mapping[str, str]
    estimator: Estimator
    costs: CostModel | None
    file: Path | None = None


def with_plan(recipe: Path | str, overrides: Sequence[str]) -> list[str]:
    """`overrides`, by which a recipe has a section `plan` that asks for one to be looked for: of defaults where it has none.

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        overrides: `KEY=VALUE` for recipe values.

    Raises:
        RecipeError: There are no search samples to look on.
    """
    loaded = load_recipe(Path(recipe), overrides)
    if loaded.recipe.data.splits.search is None:
        what = "plans are looked for, and layers profiled, on search samples, and there are none"
        raise RecipeError(what, where=loaded.where(("data", "splits")), hint="give `data.splits.search`, as in `search: 500`")
    plan = loaded.recipe.plan
    if plan is None:
        return [*overrides, "plan={}"]
    return [*overrides] if plan.file is None else [*overrides, "plan.file=null"]


def bind_plan(loaded: LoadedRecipe, schemes: Mapping[str, Scheme], metrics: Mapping[str, Any], *, estimator: Estimator, costs: CostModel | None) -> BoundPlan:
    """Check the section.

    Raises:
        RecipeError: It contradicts the rest of the recipe.
    """
    recipe = loaded.recipe
    spec = recipe.plan
    assert spec is not None, "a recipe with a plan"
    if recipe.auto is not None:
        what, hint = "`schemes: auto` stops at the first scheme that passes, and leaves nothing to mix", "list the schemes whose formats are to be mixed"
        raise RecipeError(what, where=loaded.where(("schemes",)), hint=hint)
    if TITLE in schemes:
        hint = "give it another `name:`"
        raise RecipeError(f"no scheme can be called {TITLE!r}: so is the plan that mixes formats", where=loaded.where(("schemes",)), hint=hint)
    if costs is not None and costs.quantity != "time":
        what, hint = f"the cost model {costs.kind!r} prices {costs.quantity}, and not time", "take `measured` or `roofline`; sizes are always counted"
        raise RecipeError(what, where=loaded.where(("plan", "costs")), hint=hint)
    if spec.file is not None:
        return BoundPlan(spec, _mixed(loaded, spec, schemes), estimator, costs, loaded.path / spec.file)
    if recipe.data.splits.search is None:
        what = "a plan is looked for on search samples, and there are none"
        raise RecipeError(what, where=loaded.where(("plan",)), hint="give `data.splits.search`, as in `search: 500`")
    if not metrics and spec.max_error is None and not spec.within:
        what = "without metrics there is nothing to tell a good plan by"
        hint = "give `plan.max_error`, or a budget in `plan.within`, or name a metric in `evaluation.metrics`"
        raise RecipeError(what, where=loaded.where(("evaluation",)), hint=hint)
    return BoundPlan(spec, _mixed(loaded, spec, schemes), estimator, costs)


def _mixed(loaded: LoadedRecipe, spec: PlanSpec, schemes: Mapping[str, Scheme]) -> dict[str, str]:
    """Title -> format of the schemes that may be mixed."""
    chosen: dict[str, str] = {}
    for number, title in enumerate(spec.schemes):
        where = loaded.where(("plan", "schemes", number))
        if title not in schemes:
            raise RecipeError(f"there is no scheme {title!r} to mix", where=where, hint=did_you_mean(title, list(schemes)))
        if schemes[title].data == "training":
            hint = "a plan is measured many times; train by the plan that was found, with `include` and `exclude`"
            raise RecipeError(f"scheme {title!r} trains, and cannot be mixed with others", where=where, hint=hint)
        if schemes[title].base in chosen.values():
            raise RecipeError(f"two schemes of {schemes[title].base} are to be mixed", where=where, hint="name one scheme for each format")
        chosen[title] = schemes[title].base
    if chosen:
        return chosen
    for title, scheme in schemes.items():
        if scheme.data != "training":
            chosen[title] = scheme.base
    if not chosen:
        raise RecipeError(
            "no scheme can be mixed: all of them train", where=loaded.where(("schemes",)), hint="list `int8` or another scheme that does not train"
        )
    return chosen
