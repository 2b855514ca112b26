"""From sensitivity and cost to a candidate: the closed loop for one target, and what the report tells of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from quant.core.documents import Artifact, PrecisionPlan
from quant.core.sensitivity import SensitivityProfile
from quant.engine.candidates import Baseline, Built, Workshop
from quant.engine.exported import graph_in, keep_graph, share_graph
from quant.engine.jobs import Job, Statistics
from quant.engine.judging import judged, one_line
from quant.engine.mixing.binding import TITLE
from quant.engine.mixing.bonds import EIGHT_BITS, bonds
from quant.engine.mixing.explaining import left_out
from quant.engine.mixing.ground import FLOAT, Ground
from quant.engine.mixing.looks import Alone, Looks, ended, first_found, nothing_found, plan_step, quantized
from quant.engine.mixing.plan_file import read_plan
from quant.engine.mixing.pricing import priced
from quant.engine.mixing.profiling import profiled
from quant.engine.mixing.searching import Search
from quant.engine.mixing.shares import Shares, look
from quant.engine.summary import Outcome
from quant.errors import PlanError, QuantError, RunError
from quant.planner.loop import Closed, Step, close
from quant.planner.moves import quantizes
from quant.planner.problem import ERROR, Effect, Goal, Problem
from quant.planner.solve import solve
from quant.report.mixing import EffectRow, FrontPoint, MixingRow, PlanStep
from quant.stages.first_run import ARTIFACT_FILE

_PLAN = "plan.json"


@dataclass(frozen=True)
class Mixed:
    """What was found for one target.

    Args:
        outcome: The candidate.
        row: How it was found, for the report; None where nothing could be looked for.
    """

    outcome: Outcome
    row: MixingRow | None = None


def mixed_candidate(
    workshop: Workshop, target: str, jobs: Sequence[Job], statistics: Statistics, *, reference: Baseline, uniform: Sequence[Outcome], baseline: Built
) -> Mixed:
    """The cheapest plan for `target` that passes, of all formats that may be mixed.

    Args:
        workshop: What all candidates share.
        target: Title of the target.
        jobs: What the schemes were planned as there.
        statistics: What calibration saw.
        reference: FP32 on the evaluation samples.
        uniform: What became of the schemes alone on this target.
        baseline: The FP32 artifact.

    Raises:
        RunError: The disk is full, or cannot be written.
    """
    ground = Ground(workshop, target, {job.scheme: job for job in jobs if job.target == target}, statistics)
    if not ground.titles:
        why = "; ".join(f"{f}: {reason}" for f, reason in ground.left_out.items())
        return Mixed(Outcome(TITLE, target, status="not applicable", reason=f"no format is left to mix: {why}"))
    closing = Closing(workshop, ground, reference, uniform, baseline)
    if ground.bound.file is not None:
        return Mixed(closing.judged(ground.plan(read_plan(ground.bound.file, ground))))
    try:
        return closing.run()
    except RunError:
        raise
    except QuantError as error:
        return Mixed(Outcome(TITLE, target, status="failed", reason=one_line(error), fails=True))


def mixed_artifact(ground: Ground, plan: PrecisionPlan) -> Built:
    """Write the artifact of a plan that mixes formats.

    Raises:
        QuantError: The engine refuses it.
    """
    workshop, base = ground.workshop, ground.base

    def produce(folder: Path) -> None:
        model, done, _ = ground.write(plan)
        keep_graph(model, folder)
        artifact = workshop.export(model, folder / "files", scheme=TITLE, target=ground.target)
        share_graph(folder, artifact, folder / "files")
        artifact.save(folder / "files" / ARTIFACT_FILE)
        done.save(folder / _PLAN)

    folder = workshop.cache.stage(f"apply:{TITLE} on {ground.target}", {**ground.key, "plan": plan.digest}, produce)
    artifact, done = Artifact.load(folder / "files" / ARTIFACT_FILE), PrecisionPlan.load(folder / _PLAN)
    return Built(TITLE, ground.target, artifact, folder / "files", done, {}, graph_in(folder), base.story, base.table)


class Closing:
    """The closed loop for one target.

    Args:
        workshop: What all candidates share.
        ground: What plans stand on.
        reference: FP32 on the evaluation samples; None when no candidate is to come of it.
        uniform: What became of the schemes alone.
        baseline: The FP32 artifact; None where no engine is asked what it takes.
    """

    def __init__(self, workshop: Workshop, ground: Ground, reference: Baseline | None, uniform: Sequence[Outcome], baseline: Built | None) -> None:
        self.workshop, self.ground, self.reference = workshop, ground, reference
        self.uniform = {o.scheme: o for o in uniform if o.target == ground.target}
        self.baseline = baseline

    @cached_property
    def shares(self) -> Shares:
        """How sure each look at the evaluation samples has to be; within budgets there is one plan, and one look."""
        spec = self.ground.bound.spec
        return Shares.of(1 if spec.within else spec.looks, len(self.ground.titles))

    @cached_property
    def search(self) -> Search:
        """Measures plans."""
        return Search(self.ground, self.shares.plans)

    def run(self) -> Mixed:
        """The plan that was found, as a candidate."""
        closed, end = self._planned()
        spec = self.ground.bound.spec

        def judge(choices: Mapping[str, str], share: float) -> Outcome:
            why = {out.layer: " ".join(out.why) for out in left_out(self.ground, closed.problem, choices, self.profile, cost=spec.minimize)}
            return self.judged(self.ground.plan(choices, why), share)

        looks = Looks(closed, self.shares, judge, self.search.measure, spec.minimize, lambda: time.monotonic() > end, within=bool(spec.within))
        found = looks.run(self._alone(closed.problem))
        row = self.row(closed, found.choices, found.ended, found.steps)
        if found.outcome is None:
            return Mixed(Outcome(TITLE, self.ground.target, status="not applicable", reason=row.ended), row)
        return Mixed(found.outcome, row)

    def found(self) -> tuple[Mapping[str, str] | None, MixingRow]:
        """(the plan that passes on search samples, how it was found)."""
        closed, _ = self._planned()
        best, spec = closed.best, self.ground.bound.spec
        if best is None or (spec.within and not closed.steps[-1].joint.passes):
            return None, self.row(closed, None, nothing_found(closed, spec.minimize, within=bool(spec.within)))
        told = first_found(closed, within=bool(spec.within))
        return best, self.row(closed, best, ended(told, best, len(closed.steps)))

    def _planned(self) -> tuple[Closed, float]:
        """(what the search found, when its time is over)."""
        problem = self.studied()
        end = time.monotonic() + self.ground.bound.spec.time_limit
        return self.closed(problem, end), end

    def studied(self) -> Problem:
        """What is to be planned, once effects are profiled and costs are priced."""
        self.profile = profiled(self.ground, self.search)
        self.prices = priced(self.ground, self.baseline, {f: self.uniform.get(title) for f, title in self.ground.titles.items()})
        return self.problem()

    def problem(self) -> Problem:
        """Effects, costs, groups and pins."""
        bound = bonds(self.ground)
        effects = {layer: {f: self._effect(layer, f) for f in formats if self._known(layer, f)} for layer, formats in self.ground.formats.items()}
        families = tuple(frozenset({f}) for f in EIGHT_BITS if f in self.ground.titles)
        return Problem(effects, self.prices.tables, bound.groups, bound.pins, families if len(families) > 1 else ())

    def _known(self, layer: str, number_format: str) -> bool:
        return self.profile.knows(layer, number_format)

    def _effect(self, layer: str, number_format: str) -> Effect:
        found = self.profile.effect(layer, number_format)
        return Effect(found.value, found.standard_error)

    def closed(self, problem: Problem, end: float) -> Closed:
        """The closed loop until `end`; with budgets, the most accurate plan within them, measured once."""
        spec = self.ground.bound.spec
        if not spec.within:
            return close(problem, self.search.measure, cost=spec.minimize, over=lambda: time.monotonic() > end)
        whole = dict.fromkeys(problem.effects, FLOAT)
        within: dict[str, float] = {name: share * problem.costs[name].total(whole) for name, share in spec.within.items()}
        try:
            found = solve(problem, Goal(minimize=ERROR, within=within))
        except PlanError as error:
            raise error.at(self.workshop.bound.loaded.where(("plan", "within"))) from error
        if not quantizes(found.choices):
            return Closed(None, (), (found,), problem, in_time=True)
        joint = self.search.measure(found.choices)
        step = Step("front", found.choices, found.error, found.costs[spec.minimize], joint, "the most accurate plan within the budgets")
        holds = spec.max_error is None or joint.error <= spec.max_error  # gates are for the evaluation samples to tell: there is one look, at this plan
        return Closed(found.choices if holds else None, (step,), (found,), problem, in_time=True)

    def _alone(self, problem: Problem) -> Alone | None:
        """The cheapest scheme alone that passed; none within budgets, whose plan is the most accurate one, and none that breaks what the recipe keeps."""
        table, found = problem.costs[self.ground.bound.spec.minimize], []
        for f, title in self.ground.titles.items() if not self.ground.bound.spec.within else ():
            outcome, choices = self.uniform.get(title), self.everywhere(f)
            if outcome is not None and outcome.verdict == "pass" and allows(problem, choices):
                found.append(Alone(title, choices))
        return min(found, key=lambda alone: (table.total(alone.choices), alone.title), default=None)

    def everywhere(self, number_format: str) -> dict[str, str]:
        """Every layer that can be in a format, in it."""
        quantized = set(self.ground.plans[number_format].quantized)
        return {layer: number_format if layer in quantized else FLOAT for layer in self.ground.formats}

    def judged(self, plan: PrecisionPlan, share: float = 1.0) -> Outcome:
        """The plan as a candidate, on the evaluation samples, with this share of the error probability of its gates."""
        engine, reference = self.ground.engine, self.reference
        assert reference is not None, "a candidate is judged beside FP32"
        emulated = next((why for f in self.ground.titles if (why := engine.emulates(f)) is not None), None)
        workshop = look(self.workshop, share) if share < 1 else self.workshop
        return judged(workshop, lambda: mixed_artifact(self.ground, plan), reference, scheme=TITLE, target=self.ground.target, plan=plan, emulated=emulated)

    def row(self, closed: Closed, best: Mapping[str, str] | None, ended: str, steps: Sequence[PlanStep] = ()) -> MixingRow:
        """How it was found."""
        table = closed.problem.costs[self.ground.bound.spec.minimize]
        profile: SensitivityProfile = self.profile
        notes = [*profile.notes, *self.prices.notes, *(f"{f} is not mixed: {why}" for f, why in self.ground.left_out.items())]
        pairs = (f"{i.one} and {i.other} together add {i.effect:.3g} to the error" for i in closed.problem.interactions)
        effects = tuple(
            EffectRow(layer=e.layer, format=e.format, value=e.value, standard_error=e.standard_error, cost=table.cost(e.layer, e.format))
            for e in profile.effects
            if e.part == "both" and e.layer in closed.problem.effects and e.format in closed.problem.effects[e.layer]
        )
        return MixingRow(
            target=self.ground.target,
            formats=tuple(self.ground.titles),
            measure=profile.measure,
            estimator=profile.found_by,
            samples=profile.samples,
            cost=table.source,
            unit=table.unit,
            estimated=table.estimated,
            ended=ended,
            steps=(*(plan_step(step) for step in closed.steps), *steps),
            front=tuple(FrontPoint(error=s.error.value, cost=s.costs[self.ground.bound.spec.minimize], quantized=quantized(s.choices)) for s in closed.front),
            uniform=tuple(self._point(title, self.everywhere(f), closed.problem) for f, title in self.ground.titles.items()),
            effects=effects,
            left_out=left_out(self.ground, closed.problem, best, profile, cost=self.ground.bound.spec.minimize) if best is not None else (),
            notes=(*notes, *pairs),
        )

    def _point(self, name: str, choices: Mapping[str, str], problem: Problem) -> FrontPoint:
        cost = problem.costs[self.ground.bound.spec.minimize].total(choices)
        return FrontPoint(name=name, error=problem.error(choices).value, cost=cost, quantized=quantized(choices))


def allows(problem: Problem, choices: Mapping[str, str]) -> bool:
    """Whether layers that move together have one format in `choices`, and those that are kept in a format have that."""
    return all(
        {choices[layer] for layer in unit.layers} <= set(unit.formats) and len({choices[layer] for layer in unit.layers}) == 1 for unit in problem.units()
    )


def check_plan(workshop: Workshop, jobs: Sequence[Job], statistics: Statistics) -> None:
    """Hold to the model, before any long work, a plan that is to be carried out, or what the recipe says of the one that is to be found.

    Raises:
        PlanError: It does not fit.
    """
    for target in dict.fromkeys(job.target for job in jobs if job.plan is not None):
        ground = Ground(workshop, target, {job.scheme: job for job in jobs if job.target == target}, statistics)
        if not ground.titles:
            continue
        if ground.bound.file is not None:
            read_plan(ground.bound.file, ground)
        else:
            bonds(ground)
