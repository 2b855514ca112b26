"""Profiles and plans by themselves, before anything is run on evaluation samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quant.core.registry import did_you_mean
from quant.core.sensitivity import SensitivityProfile
from quant.core.shown import Cell, Chart, Shown, Table
from quant.engine.candidates import Built, Workshop
from quant.engine.jobs import Job, Statistics
from quant.engine.mixing.bonds import bonds
from quant.engine.mixing.closing import Closing
from quant.engine.mixing.ground import Ground
from quant.engine.mixing.plan_file import write_plan
from quant.engine.mixing.profiling import profiled
from quant.engine.mixing.searching import Search
from quant.engine.run import planned_jobs
from quant.engine.summary import Outcome
from quant.errors import QuantError
from quant.report.mixing import MixingRow, mixing_chart


@dataclass(frozen=True, repr=False)
class Planned(Shown):
    """A plan that was found.

    Args:
        choices: Layer -> format; None when no plan that quantizes anything passes.
        row: How it was found.
        model: Digest of the FP32 model.
        target: Title of the target.
    """

    choices: Mapping[str, str] | None
    row: MixingRow
    model: str
    target: str

    def as_table(self) -> Table:
        """Layer by layer, its format and what that does to the outputs; where nothing passes, what was measured."""
        found = {(e.layer, e.format): e for e in self.row.effects}
        rows = []
        for layer, chosen in (self.choices or {}).items():
            effect = found.get((layer, chosen))
            rows.append((layer, chosen, None if effect is None else effect.value, None if effect is None else effect.cost))
        facts: dict[str, Cell] = {"target": self.target, "found": self.row.ended, "plans measured": len(self.row.steps)}
        return Table("Plan" if self.choices else "No plan", ("layer", "format", "effect", f"cost, {self.row.unit}"), rows, facts)

    def as_chart(self) -> Chart:
        """The front of plans with the schemes alone, and what was measured."""
        return mixing_chart(self.row)

    def save(self, path: Path | str) -> None:
        """Write it as YAML that a person can edit.

        Raises:
            QuantError: There is no plan, or the file cannot be written.
        """
        if self.choices is None:
            raise QuantError(f"there is no plan to write: {self.row.ended}", hint="the row of `to_frame`, and `plot`, show what was tried")
        effects = {(e.layer, e.format): e for e in self.row.effects}
        said = {layer: f"effect {effects[layer, f].value:.3g}" for layer, f in self.choices.items() if (layer, f) in effects}
        said |= {out.layer: " ".join(out.why) for out in self.row.left_out}
        write_plan(Path(path), self.choices, model=self.model, target=self.target, said=said, head=self.row.ended)


def profile_of(workshop: Workshop, target: str | None) -> SensitivityProfile:
    """What each layer does to the outputs, in each format that a recipe mixes.

    Raises:
        QuantError: No format is left to mix, or the model or a sample cannot be used.
    """
    ground, _ = ground_of(workshop, target)
    return profiled(ground, Search(ground))


def plan_of(workshop: Workshop, target: str | None) -> Planned:
    """The cheapest plan that passes on search samples.

    Raises:
        QuantError: No format is left to mix, or the model or a sample cannot be used.
    """
    closing = closing_of(workshop, target)
    best, row = closing.found()
    return Planned(best, row, workshop.prepared.digest, closing.ground.target)


def closing_of(workshop: Workshop, target: str | None) -> Closing:
    """What plans of a target are found with, its schemes alone built and not judged.

    Raises:
        QuantError: No format is left to mix, or the model or a sample cannot be used.
    """
    ground, statistics = ground_of(workshop, target)
    return Closing(workshop, ground, None, alone_on(workshop, ground, statistics), workshop.build_baseline(ground.target))


def alone_on(workshop: Workshop, ground: Ground, statistics: Statistics) -> list[Outcome]:
    """The schemes that are mixed, each alone: built, and not judged."""
    return [Outcome(title, ground.target, _built(workshop, ground, statistics, f)) for f, title in ground.titles.items()]


def _built(workshop: Workshop, ground: Ground, statistics: Statistics, number_format: str) -> Built:
    title = ground.titles[number_format]
    return workshop.build(title, ground.target, ground.plans[number_format], statistics.table_for(Job(title, ground.target)))


def ground_of(workshop: Workshop, target: str | None) -> tuple[Ground, Statistics]:
    """What plans of a target stand on, and what calibration sees.

    Raises:
        QuantError: There is no such target, or no format is left to mix.
    """
    targets = list(workshop.bound.targets)
    chosen = target or targets[0]
    if chosen not in targets:
        raise QuantError(f"the recipe has no target {chosen!r}", where=workshop.bound.loaded.where(("targets",)), hint=did_you_mean(chosen, targets))
    jobs = planned_jobs(workshop)
    statistics = Statistics(workshop, jobs)
    ground = Ground(workshop, chosen, {job.scheme: job for job in jobs if job.target == chosen}, statistics)
    if not ground.titles:
        why = "; ".join(f"{f}: {reason}" for f, reason in ground.left_out.items())
        hint = "list a scheme whose format can be mixed there, or take another target with `--target`"
        raise QuantError(f"no format is left to mix: {why}", where=f"target {chosen}", hint=hint)
    bonds(ground)  # before any long work
    return ground, statistics
