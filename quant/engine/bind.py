"""bind: every name, option and pattern of a recipe is checked before any work starts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from calibrators import CALIBRATORS
from evaluators import METRICS
from quant.core.digest import digest_of, digest_of_file
from quant.core.protocols import Calibrator, Metric
from quant.core.registry import Registry, did_you_mean
from quant.costs import COSTS, CostModel
from quant.data.code import load_function
from quant.data.processors import PROCESSORS
from quant.engine.mixing.binding import BoundPlan, bind_plan
from quant.errors import QuantError, RecipeError
from quant.recipe.load import LoadedRecipe, options_error
from quant.recipe.schema import GateSpec, Recipe, Use
from quant.recipe.tree import Location
from quant.schemes import SCHEMES, Scheme
from quant.sensitivity import ESTIMATORS, Estimator
from quant.targets import TARGETS, Target
from quant.transforms import TRANSFORMS, Transform

BASELINE = "fp32"
"""What the unquantized model goes by among the candidates, in reports and folders."""

REGISTRIES: Mapping[str, Registry[Any]] = {
    "scheme": SCHEMES,
    "transform": TRANSFORMS,
    "target": TARGETS,
    "calibrator": CALIBRATORS,
    "metric": METRICS,
    "processor": PROCESSORS,
    "estimator": ESTIMATORS,
    "cost": COSTS,
}
"""The registries of everything that a recipe can name, by noun."""


@dataclass(frozen=True)
class Bound:
    """A recipe whose names and options are checked, with the plug-ins that it asks for.

    Args:
        loaded: The recipe and where its lines are.
        calibrator: How ranges are chosen.
        schemes: Title -> scheme, in the recipe's order; behind them those of `on_fail` that are not among them.
        transforms: Title -> transform, in the recipe's order.
        targets: Title -> target.
        metrics: Title -> metric.
        gates: (title of the metric, gate), in the recipe's order; empty without metrics.
        code: Title of a metric that is a user's function -> SHA-256 of the file that holds it.
        plan: How formats are to be mixed; None when they are not.
        fallbacks: Titles of what is delivered in turn where nothing passes, FP32 last; none when the recipe asks for none.
    """

    loaded: LoadedRecipe
    calibrator: Calibrator
    schemes: Mapping[str, Scheme]
    transforms: Mapping[str, Transform]
    targets: Mapping[str, Target]
    metrics: Mapping[str, Metric]
    gates: tuple[tuple[str, GateSpec], ...]
    code: Mapping[str, str]
    plan: BoundPlan | None = None
    fallbacks: tuple[str, ...] = ()

    @property
    def tried(self) -> tuple[str, ...]:
        """Titles of the schemes that are tried in any case: all but those that only stand by."""
        return tuple(self.schemes)[: len(scheme_uses(self.loaded.recipe)[0])]

    def use(self, scheme: str) -> Use:
        """The scheme of that title as the recipe has it."""
        return next(use for use, _ in _every_use(self.loaded.recipe) if use.title == scheme)

    def where(self, scheme: str) -> str:
        """The place that wrote the scheme of that title."""
        return self.loaded.where(next(place for use, place in _every_use(self.loaded.recipe) if use.title == scheme))


def bind(loaded: LoadedRecipe, *, trust_code: bool) -> Bound:
    """Check the recipe's names and options, and make its plug-ins.

    Raises:
        RecipeError: A name or an option is unknown or wrong; the message has the recipe's line.
    """
    recipe = loaded.recipe
    calibrator: Calibrator = _make(loaded, CALIBRATORS, recipe.calibration.calibrator, ("calibration", "calibrator"))
    uses, place = scheme_uses(recipe)
    schemes = _make_all(loaded, SCHEMES, uses, *place)
    transforms = _make_all(loaded, TRANSFORMS, recipe.transforms, "transforms")
    targets = _make_all(loaded, TARGETS, recipe.targets, "targets")
    code = _trust_metrics(loaded, trust_code=trust_code)
    metrics = _make_all(loaded, METRICS, recipe.evaluation.metrics, "evaluation", "metrics")
    if recipe.auto is not None and not metrics:
        what = "`schemes: auto` stops at a scheme that passes the gate, and without metrics there is nothing to gate by"
        raise RecipeError(what, where=loaded.where(("schemes",)), hint="name a metric in `evaluation.metrics`, or list the schemes")
    plan = _plan(loaded, schemes, metrics)
    fallbacks = _fallbacks(loaded, schemes)
    return Bound(loaded, calibrator, schemes | fallbacks, transforms, targets, metrics, _gates(loaded, metrics), code, plan, _fallback_titles(recipe))


def _fallbacks(loaded: LoadedRecipe, schemes: Mapping[str, Scheme]) -> dict[str, Scheme]:
    """Title -> scheme of `on_fail`, but for FP32 and those that are tried anyway.

    Raises:
        RecipeError: There is no such scheme, or nothing could fail.
    """
    recipe = loaded.recipe
    if recipe.on_fail and not recipe.evaluation.metrics:
        what = "`on_fail` says what is delivered when no candidate passes, and without metrics there is nothing to pass"
        raise RecipeError(what, where=loaded.where(("on_fail",)), hint="name a metric in `evaluation.metrics`")
    wanted = [(number, use) for number, use in enumerate(recipe.on_fail) if use.kind != BASELINE and use.title not in schemes]
    return {use.title: _make(loaded, SCHEMES, use, ("on_fail", number)) for number, use in wanted}


def _fallback_titles(recipe: Recipe) -> tuple[str, ...]:
    """Titles of `on_fail`, each once, and FP32 behind them; what stands behind FP32 is never reached."""
    titles = [*dict.fromkeys(BASELINE if use.kind == BASELINE else use.title for use in recipe.on_fail)]
    return (*titles[: titles.index(BASELINE)], BASELINE) if BASELINE in titles else (*titles, BASELINE) if titles else ()


def _every_use(recipe: Recipe) -> Iterator[tuple[Use, Location]]:
    """Every scheme as it is written, with its place: those of `schemes` first."""
    uses, place = scheme_uses(recipe)
    yield from ((use, (*place, number)) for number, use in enumerate(uses))
    yield from ((use, ("on_fail", number)) for number, use in enumerate(recipe.on_fail))


def _plan(loaded: LoadedRecipe, schemes: Mapping[str, Scheme], metrics: Mapping[str, Metric]) -> BoundPlan | None:
    spec = loaded.recipe.plan
    if spec is None:
        return None
    estimator: Estimator = _make(loaded, ESTIMATORS, spec.estimator, ("plan", "estimator"))
    costs: CostModel | None = _make(loaded, COSTS, spec.costs, ("plan", "costs")) if spec.costs is not None else None
    return bind_plan(loaded, schemes, metrics, estimator=estimator, costs=costs)


def scheme_uses(recipe: Recipe) -> tuple[tuple[Use, ...], Location]:
    """The schemes of a recipe (of `auto`, all that may be tried), and where they are written."""
    if recipe.auto is None:
        return recipe.listed, ("schemes",)
    return recipe.auto.among or tuple(Use(kind=kind) for kind in SCHEMES), ("schemes", "among")


def check_options(loaded: LoadedRecipe) -> None:
    """Check the names and options of all plug-ins that the recipe names, without making any: no code of the user's runs.

    Raises:
        RecipeError: A name or an option is unknown or wrong; the message has the recipe's line.
    """
    recipe = loaded.recipe
    schemes, place = scheme_uses(recipe)
    uses: list[tuple[Registry[Any], Use, Location]] = [
        (CALIBRATORS, recipe.calibration.calibrator, ("calibration", "calibrator")),
        (PROCESSORS, recipe.data.inputs, ("data", "inputs")),
        *((SCHEMES, use, (*place, number)) for number, use in enumerate(schemes)),
        *((SCHEMES, use, ("on_fail", number)) for number, use in enumerate(recipe.on_fail) if use.kind != BASELINE),
        *((TRANSFORMS, use, ("transforms", number)) for number, use in enumerate(recipe.transforms)),
        *((TARGETS, use, ("targets", number)) for number, use in enumerate(recipe.targets)),
        *((METRICS, use, ("evaluation", "metrics", number)) for number, use in enumerate(recipe.evaluation.metrics)),
        *_plan_uses(recipe),
    ]
    for registry, use, location in uses:
        try:
            options = registry.get(use.kind).Options
            options.model_validate(use.options)
        except ValidationError as error:
            raise options_error(loaded, location, error, options) from error
        except QuantError as error:
            raise error.at(loaded.where(location)) from error


def _plan_uses(recipe: Recipe) -> list[tuple[Registry[Any], Use, Location]]:
    plan = recipe.plan
    if plan is None:
        return []
    costs: list[tuple[Registry[Any], Use, Location]] = [(COSTS, plan.costs, ("plan", "costs"))] if plan.costs is not None else []
    return [(ESTIMATORS, plan.estimator, ("plan", "estimator")), *costs]


def _make(loaded: LoadedRecipe, registry: Registry[Any], use: Use, location: Location) -> Any:
    try:
        return registry.make(use.kind, use.options)
    except ValidationError as error:
        raise options_error(loaded, location, error, registry.get(use.kind).Options) from error
    except QuantError as error:
        raise error.at(loaded.where(location)) from error


def _make_all(loaded: LoadedRecipe, registry: Registry[Any], uses: tuple[Use, ...], *location: str | int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for number, use in enumerate(uses):
        place: Location = (*location, number)
        if registry is SCHEMES and use.title == BASELINE:
            what, hint = (
                f"no scheme can be called {BASELINE!r}: so is the model that all are compared with",
                f"such as {{kind: {use.kind}, name: my-{use.kind}}}",
            )
            raise RecipeError(what, where=loaded.where(place), hint=hint)
        if use.title in made:
            raise RecipeError(
                f"two {registry.noun}s are called {use.title!r}",
                where=loaded.where(place),
                hint=f"give one of them another `name:`, as in {{kind: {use.kind}, name: {use.kind}-2}}",
            )
        made[use.title] = _make(loaded, registry, use, place)
    return made


def _trust_metrics(loaded: LoadedRecipe, *, trust_code: bool) -> dict[str, str]:
    """A user's metric is imported by its plug-in; whether it may be is decided here, before that. Gives digests of their code by title."""
    code: dict[str, list[str]] = {}
    for number, use in enumerate(loaded.recipe.evaluation.metrics):
        for value in use.options.values():
            if use.kind == "function" and isinstance(value, str) and ":" in value:
                function = load_function(value, base=loaded.path, trust_code=trust_code, where=loaded.where(("evaluation", "metrics", number)))
                file = inspect.getsourcefile(function)
                code.setdefault(use.title, []).append(digest_of_file(Path(file)) if file else "")
    return {title: digest_of(found) for title, found in code.items()}


def _gates(loaded: LoadedRecipe, metrics: Mapping[str, Metric]) -> tuple[tuple[str, GateSpec], ...]:
    gates = []
    for number, gate in enumerate(loaded.recipe.gate):
        where = loaded.where(("gate", number, "metric"))
        if gate.metric is not None and gate.metric not in metrics:
            raise RecipeError(f"the gate's metric {gate.metric!r} is none of evaluation.metrics", where=where, hint=did_you_mean(gate.metric, list(metrics)))
        titles = [spec.title for spec in loaded.recipe.evaluation.slices]
        for place, title in enumerate(gate.slices):
            if title not in titles:
                where = loaded.where(("gate", number, "slices", place))
                raise RecipeError(f"{title!r} is none of evaluation.slices", where=where, hint=did_you_mean(title, titles))
        if gate.sequential != loaded.recipe.gate[0].sequential:
            where = loaded.where(("gate", number, "sequential"))
            raise RecipeError("some gates look early and others do not, or at other times", where=where, hint="write the same `sequential` for each gate")
        if metrics:
            gates.append((gate.metric or next(iter(metrics)), gate))
    return tuple(gates)
