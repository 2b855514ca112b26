"""Transforms before a scheme is applied, kept like any other stage's result."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quant.core.dialect import Dialect
from quant.core.digest import digest_of
from quant.core.documents import PrecisionPlan
from quant.core.formats import Range
from quant.core.table import CalibrationTable
from quant.schemes import Scheme
from quant.stages.improve import Improved, Story, Work, improve
from quant.transforms import Transform, transform_options

if TYPE_CHECKING:
    from quant.engine.candidates import Workshop

_STORY, _RANGES, _MODEL, _TABLE, _SCRATCH = "story.json", "ranges.json", "model", "table", "scratch"


def improved(workshop: Workshop, scheme: str, target: str, plan: PrecisionPlan, table: CalibrationTable) -> Improved:
    """The model to quantize by `plan`, with every transform that helps; the model as it is when none can."""
    how, engine = workshop.bound.schemes[scheme], workshop.bound.targets[target]
    chosen = {title: transform for title, transform in workshop.bound.transforms.items() if _can_help(transform, how)}
    plain = Improved(workshop.prepared.path, table, {}, Story(steps=()))
    if not chosen:
        return plain
    recipe, prepared = workshop.bound.loaded.recipe, workshop.prepared
    roles = prepared.data.roles
    dialect = dataclasses.replace(engine.dialect, body="fp32")  # the story is that of the quantizers, whatever runs beside them
    work = Work(
        how, plan, dialect, workshop.bound.calibrator, prepared.feeding(workshop.bound, recipe.calibration.batch_size), roles["calibration"],
        roles.get("search") or roles["calibration"], prepared.digest,
    )  # fmt: skip

    def produce(folder: Path) -> None:
        found = improve(prepared.path, chosen, work, table=table, scratch=folder / _SCRATCH)
        if found.path != prepared.path:
            found.path.parent.rename(folder / _MODEL)
        shutil.rmtree(folder / _SCRATCH, ignore_errors=True)
        found.table.save(folder / _TABLE)
        found.story.save(folder / _STORY)
        (folder / _RANGES).write_text(json.dumps({name: list(pair) for name, pair in found.ranges.items()}, sort_keys=True), encoding="utf-8")

    key = {**_key(workshop, chosen, plan, dialect), "scheme": workshop.bound.use(scheme).options, "table": table.digest}
    folder = workshop.cache.stage(f"improve:{scheme} on {target}", key, produce)
    ranges = {name: Range(*pair) for name, pair in json.loads((folder / _RANGES).read_text(encoding="utf-8")).items()}
    changed = folder / _MODEL / prepared.path.name
    return Improved(changed if changed.exists() else prepared.path, CalibrationTable.load(folder / _TABLE), ranges, Story.load(folder / _STORY))


def _can_help(transform: Transform, scheme: Scheme) -> bool:
    """Whether what `transform` does is of use to `scheme`: training does itself, and better, what changes the FP32 function for the sake of rounding."""
    return scheme.base in transform.bases and (scheme.data == "calibration" or (scheme.data == "training" and transform.keeps_function))


def improvement_digest(found: Improved) -> str:
    """SHA-256 (hex) of all that a scheme takes over from transforms."""
    return digest_of([found.story.digest, {name: list(pair) for name, pair in found.ranges.items()}, found.table.digest])


def _key(workshop: Workshop, chosen: Mapping[str, Transform], plan: PrecisionPlan, dialect: Dialect) -> dict[str, Any]:
    recipe, prepared = workshop.bound.loaded.recipe, workshop.prepared
    return {
        "model": prepared.digest,
        "plan": plan.digest,
        "transforms": [[title, transform.kind, transform_options(transform)] for title, transform in chosen.items()],
        "calibrator": recipe.calibration.calibrator.model_dump(mode="json"),
        "dialect": _told(dialect),
        "data": {role: prepared.data.roles[role].digest for role in ("calibration", "search") if role in prepared.data.roles},
        "state": recipe.model.state,
        "axes": recipe.model.batch_axes,
        "batch": recipe.calibration.batch_size,
    }


def _told(value: Any) -> Any:
    """What a dialect says, for a key: sets in order, grids and other parts by their fields."""
    if dataclasses.is_dataclass(value):
        return {field.name: _told(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_told(part) for part in value] if isinstance(value, tuple) else value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
