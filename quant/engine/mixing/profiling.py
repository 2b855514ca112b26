"""The sensitivity profile of a target's plans, kept like any other stage's result."""

from __future__ import annotations

from pathlib import Path

from quant.core.sensitivity import SensitivityProfile
from quant.engine.mixing.binding import TITLE
from quant.engine.mixing.ground import Ground
from quant.engine.mixing.provenance import provenance
from quant.engine.mixing.searching import Search
from quant.stages.profile import Profiling, profile

_PROFILE = "profile.json"


def profiled(ground: Ground, search: Search) -> SensitivityProfile:
    """What each layer does to the outputs in each format that is mixed.

    Raises:
        PlanError: No layer can be in any of the formats.
        QuantError: The model or a sample cannot be used.
    """
    workshop, recipe = ground.workshop, ground.workshop.bound.loaded.recipe
    plan = recipe.plan
    assert plan is not None, "a recipe with a plan"

    def produce(folder: Path) -> None:
        work = Profiling(
            schemes={f: workshop.bound.schemes[title] for f, title in ground.titles.items()},
            dialect=ground.engine.dialect,
            calibrator=workshop.bound.calibrator,
            feeding=workshop.prepared.feeding(workshop.bound, recipe.calibration.batch_size),
            samples=search.few,
            measures=search.measures,
            given=ground.base.ranges,
            digest=workshop.prepared.digest,
        )
        found = profile(ground.base.path, work, table=ground.table, estimator=ground.bound.estimator)
        found.model_copy(update={"keys": {**found.keys, **provenance(ground, search.samples.digest)}}).save(folder / _PROFILE)

    key = {"ground": ground.key, "samples": search.samples.digest, "few": len(search.few), "estimator": plan.estimator.model_dump(mode="json")}
    key = {**key, "batch": recipe.calibration.batch_size, "measures": [str(measure) for measure in search.measures]}
    return SensitivityProfile.load(workshop.cache.stage(f"profile:{TITLE} on {ground.target}", key, produce) / _PROFILE)
