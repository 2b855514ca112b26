"""All that is known of the plans of one target, opened to be looked at: effects, costs, the front; and any plan can be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quant.core.arguments import with_checked_arguments
from quant.core.cache_folder import cache_folder
from quant.core.documents import PrecisionPlan
from quant.core.sensitivity import SensitivityProfile
from quant.engine.bind import bind
from quant.engine.cache import StageCache
from quant.engine.candidates import Workshop
from quant.engine.mixing.binding import TITLE, with_plan
from quant.engine.mixing.closing import Closing
from quant.engine.mixing.exploring import closing_of
from quant.engine.mixing.ground import FLOAT, Ground
from quant.engine.mixing.plan_file import write_plan
from quant.engine.prepare import prepare
from quant.engine.run import Run, no_exit
from quant.errors import RunError
from quant.planner.loop import Joint
from quant.planner.problem import Problem
from quant.recipe.load import LoadedRecipe, load_recipe

_RECIPE = "recipe.yaml"


@dataclass(frozen=True)
class Study:
    """The plans of one target.

    Args:
        workshop: The recipe, with its model and data.
        closing: What plans are found with.
        problem: Effects, costs, and which layers move together.
        start: Layer -> format of the plan that the run delivers; None where it has none.
    """

    workshop: Workshop
    closing: Closing
    problem: Problem
    start: Mapping[str, str] | None = None

    @property
    def ground(self) -> Ground:
        """The model, its calibration, and how plans are written."""
        return self.closing.ground

    @property
    def profile(self) -> SensitivityProfile:
        """What each layer does to the outputs."""
        return self.closing.profile

    @property
    def cost(self) -> str:
        """Name of the cost that the recipe makes small."""
        return self.ground.bound.spec.minimize

    @property
    def name(self) -> str:
        """Name of the recipe."""
        return self.workshop.bound.loaded.recipe.name

    def everywhere(self, number_format: str) -> dict[str, str]:
        """The plan of a scheme alone."""
        return dict.fromkeys(self.problem.effects, FLOAT) if number_format == FLOAT else self.closing.everywhere(number_format)

    def measure(self, choices: Mapping[str, str]) -> Joint:
        """A plan as a whole, in its engine, on the search samples; kept like any stage's result.

        Raises:
            RunError: The disk is full, or cannot be written.
        """
        return self.closing.search.measure(choices)

    def save(self, path: Path | str, choices: Mapping[str, str], *, head: str) -> None:
        """Write a plan as `quant plan` does; `quant apply` takes it.

        Raises:
            RunError: The file cannot be written.
        """
        known = {(e.layer, e.format): e.value for e in self.profile.effects if e.part == "both"}
        said = {layer: f"effect {known[layer, f]:.3g}" for layer, f in choices.items() if (layer, f) in known}
        write_plan(Path(path), choices, model=self.workshop.prepared.digest, target=self.ground.target, said=said, head=head)


def _opened(of: Run | Path | str, overrides: Sequence[str]) -> tuple[LoadedRecipe, Path | None]:
    """(the recipe, with a plan; the run's folder if there is one)."""
    place = of.folder if isinstance(of, Run) else Path(of)
    if isinstance(of, Run) and not place.is_dir():
        raise RunError("the folder of this run is gone", where=str(place), hint="give the recipe, or the folder's new place")
    folder = place if place.is_dir() else None
    if folder is not None and not (folder / _RECIPE).is_file():
        raise RunError(f"holds no {_RECIPE}", where=str(folder), hint="give the folder that a run wrote, or a recipe")
    file = place if folder is None else folder / _RECIPE
    loaded = load_recipe(file, with_plan(file, overrides))
    return (loaded if folder is None else replace(loaded, path=Path.cwd())), folder


@with_checked_arguments
def study(of: Run | Path | str, *, target: str | None = None, overrides: Sequence[str] = (), trust_code: bool = False) -> Study:
    """Open the plans of a target. What a run has found already is taken from the cache.

    Args:
        of: A run or its folder, whose relative sources start in the current folder; or a recipe.
        target: Title of the target; the first when not given.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used, or no format is left to mix.
    """
    loaded, folder = _opened(of, overrides)
    with no_exit(loaded.where(())):
        bound = bind(loaded, trust_code=trust_code)
        cache = StageCache(cache_folder() / "stages")
        workshop = Workshop(bound, prepare(bound, cache, trust_code=trust_code), cache)
        workshop.check()
        closing = closing_of(workshop, target)
        problem = closing.studied()
    return Study(workshop, closing, problem, _start(folder, closing.ground))


def _start(folder: Path | None, ground: Ground) -> dict[str, str] | None:
    """The plan that a run delivered for the target, as far as its layers can be in these formats."""
    path = None if folder is None else folder / "plans" / ground.target / f"{TITLE}.json"
    if path is None or not path.is_file():
        return None
    found = {choice.layer: choice.format for choice in PrecisionPlan.load(path).layers}
    return {layer: found[layer] if found.get(layer) in formats else FLOAT for layer, formats in ground.formats.items()}
