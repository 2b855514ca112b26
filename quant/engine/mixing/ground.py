"""What all plans of a target stand on: the improved FP32 model, its calibration, and how plans are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import onnx_ir as ir

from quant.core.documents import LayerChoice, PrecisionPlan
from quant.core.formats import GRIDS, Range
from quant.core.table import CalibrationTable
from quant.engine.candidates import Workshop
from quant.engine.improving import improved, improvement_digest
from quant.engine.jobs import Job, Statistics
from quant.engine.mixing.binding import TITLE, BoundPlan
from quant.engine.settling import settled, settling_key
from quant.stages.improve import Improved, Story
from quant.stages.mixed import apply_mixed
from quant.transforms import Transform

FLOAT = "fp32"
"""The format of layers that are not quantized, whatever the target computes those in."""


class Ground:
    """The model, calibration and plans of one target.

    Args:
        workshop: What all candidates share.
        target: Title of the target.
        jobs: What the schemes that are mixed were planned as.
        statistics: What calibration saw.
    """

    def __init__(self, workshop: Workshop, target: str, jobs: Mapping[str, Job], statistics: Statistics) -> None:
        self.workshop, self.target, self.statistics = workshop, target, statistics
        self.engine = workshop.bound.targets[target]
        self.bound: BoundPlan = _plan_of(workshop)
        self.left_out: dict[str, str] = {}
        self.titles: dict[str, str] = {}
        for title, number_format in self.bound.schemes.items():
            emulated = None if self.engine.ahead_of_time else self.engine.emulates(number_format)
            job = jobs[title]
            if number_format in self.titles:
                continue
            if number_format not in GRIDS:
                self.left_out[number_format] = self._no_part(number_format)
            elif job.plan is None or emulated is not None:
                self.left_out.setdefault(number_format, emulated or job.reason)
            else:
                self.titles[number_format] = title
                self.left_out.pop(number_format, None)
        self.plans: dict[str, PrecisionPlan] = {f: plan for f, title in self.titles.items() if (plan := jobs[title].plan) is not None}

    def _no_part(self, number_format: str) -> str:
        """Why a format of floating point is no part of a plan."""
        body, emulated = self.engine.dialect.body, self.engine.emulates(number_format)
        if number_format == body:
            return f"it is what layers run in here that a plan leaves out, called {FLOAT} there"
        if emulated is not None and not self.engine.ahead_of_time:
            return f"it wins no time here: {emulated}"
        return f"what a plan leaves in float runs in the target's own type here, {body}"

    @cached_property
    def base(self) -> Improved:
        """The FP32 model with the transforms that help the scheme whose ranges are fixed, if one is mixed."""
        static = next((f for f, title in self.titles.items() if self._helped(title)), None)
        table = self.statistics.table_for(Job(self.titles[static], self.target)) if static is not None else None
        if static is None or table is None:
            return Improved(self.workshop.prepared.path, _nothing_seen(self.workshop), {}, Story(steps=()))
        return improved(self.workshop, self.titles[static], self.target, self.plans[static], table)

    def _helped(self, title: str) -> bool:
        scheme = self.workshop.bound.schemes[title]
        transforms: Mapping[str, Transform] = self.workshop.bound.transforms
        return scheme.data == "calibration" and any(scheme.base in transform.bases for transform in transforms.values())

    @cached_property
    def table(self) -> CalibrationTable:
        """What calibration sees in `base`, for all formats at once."""
        schemes = self.workshop.bound.schemes
        found = self.workshop.calibrate([(schemes[title], self.engine, self.plans[f]) for f, title in self.titles.items()], path=self.base.path)
        return found or _nothing_seen(self.workshop)

    @property
    def key_of_schemes(self) -> dict[str, Any]:
        """Format -> the scheme that it is taken from, with its options."""
        return {f: self.workshop.bound.use(title).model_dump(mode="json") for f, title in self.titles.items()}

    @property
    def key(self) -> dict[str, Any]:
        """All that a plan's artifact depends on, besides the plan."""
        recipe = self.workshop.bound.loaded.recipe
        return {
            "model": self.workshop.prepared.digest,
            "improved": improvement_digest(self.base) if self.base.story.steps else None,
            "table": self.table.digest,
            "schemes": self.key_of_schemes,
            "calibrator": recipe.calibration.calibrator.model_dump(mode="json"),
            "target": recipe.targets[list(self.workshop.bound.targets).index(self.target)].model_dump(mode="json"),
            "version": self.engine.available().version,
            "levels": next((key for plan in self.plans.values() if (key := settling_key(self.workshop, self.engine, plan)) is not None), None),
        }

    @property
    def formats(self) -> dict[str, tuple[str, ...]]:
        """Layer -> the formats that it may run in, the float one last; in graph order."""
        return {layer.name: (*(f for f, plan in self.plans.items() if layer.name in set(plan.quantized)), FLOAT) for layer in self.workshop.prepared.layers}

    def plan(self, choices: Mapping[str, str], reasons: Mapping[str, str] | None = None) -> PrecisionPlan:
        """The plan that gives layers the formats of `choices`."""
        obstacles = {c.layer: c.reason for plan in self.plans.values() for c in plan.exclusions}
        counted = Counter(f for f in choices.values() if f != FLOAT)
        base = max(counted, key=lambda f: (counted[f], f)) if counted else next(iter(self.plans))
        rows = []
        for layer in self.workshop.prepared.layers:
            chosen = choices.get(layer.name, FLOAT)
            default = "planned" if chosen != FLOAT else obstacles.get(layer.name, "") or "left in higher precision by the plan"
            rows.append(LayerChoice(layer=layer.name, op=layer.op, format=chosen, reason=(reasons or {}).get(layer.name) or default))
        return PrecisionPlan(scheme=TITLE, base=base, layers=tuple(rows))

    def write(self, plan: PrecisionPlan) -> tuple[ir.Model, PrecisionPlan, dict[str, Range]]:
        """The quantized graph of `plan`, the plan as it was carried out, and every range that was chosen."""
        used = {choice.format for choice in plan.layers}
        schemes = {f: self.workshop.bound.schemes[title] for f, title in self.titles.items() if f in used}
        calibrator = self.workshop.bound.calibrator
        model, done, found = apply_mixed(
            self.base.path, schemes, plan=plan, table=self.table, calibrator=calibrator, dialect=self.engine.dialect, given=self.base.ranges
        )
        return model, settled(self.workshop, self.engine, model, done), found


def _nothing_seen(workshop: Workshop) -> CalibrationTable:
    """The table of formats that ask nothing of activations."""
    return CalibrationTable(workshop.prepared.digest, "", 0, {}, {})


def _plan_of(workshop: Workshop) -> BoundPlan:
    plan = workshop.bound.plan
    assert plan is not None, "a recipe with a plan"
    return plan
