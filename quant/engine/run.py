"""run: a recipe from binding to report. Each stage's result is kept, so that a second run computes nothing and a killed one goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from evaluators.latency import Latency
from evaluators.memory import FirstRun
from quant.core.arguments import with_checked_arguments
from quant.core.cache_folder import cache_folder
from quant.core.shown import Chart, Shown, Table
from quant.engine.bind import Bound, bind
from quant.engine.cache import StageCache
from quant.engine.candidates import Baseline, Built, Workshop
from quant.engine.choosing import Choosing, cheapest_first
from quant.engine.delivering import deliver
from quant.engine.folder import open_folder, write_folder
from quant.engine.jobs import Job, Statistics
from quant.engine.judging import judged, one_line
from quant.engine.mixing.closing import check_plan, mixed_candidate
from quant.engine.prepare import prepare
from quant.engine.reporting import Clock, Findings, make_report
from quant.engine.summary import Outcome
from quant.engine.timing import time_artifacts
from quant.engine.training import training_obstacle
from quant.errors import PlanError, RunError, TargetError
from quant.graph.layers import no_layers
from quant.recipe.load import load_recipe
from quant.report.document import Report
from quant.report.load import load_report
from quant.schemes import study_of


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """A finished run.

    Args:
        report: What was found.
        folder: Where everything lies.
    """

    report: Report
    folder: Path

    def __fspath__(self) -> str:
        """Its folder: a run is taken wherever the folder of one is."""
        return str(self.folder)

    def as_table(self) -> Table:
        """Candidate by candidate, what was found."""
        return self.report.as_table()

    def as_chart(self) -> Chart:
        """The candidates: how much worse than FP32, over their time or size."""
        return self.report.as_chart()

    @classmethod
    @with_checked_arguments
    def load(cls, folder: Path | str) -> Run:
        """A run that is over, from its folder.

        Raises:
            RunError: There is no run.
        """
        return cls(load_report(folder), Path(folder))


@with_checked_arguments
def run(recipe: Path | str, *, output: Path | str, overrides: Sequence[str] = (), trust_code: bool = False) -> Run:
    """Run a recipe into the folder `output`.

    Args:
        recipe: A recipe file, or the name of a shipped recipe.
        output: Folder for artifacts and reports; made if missing.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, a source, the model or the data cannot be used, or the folder cannot be written.
    """
    clock = Clock()
    loaded = load_recipe(Path(recipe), overrides)
    with no_exit(loaded.where(())):
        bound = bind(loaded, trust_code=trust_code)
        with open_folder(Path(output)):
            report = _run(bound, Path(output), clock, trust_code=trust_code)
    return Run(report, Path(output))


def _run(bound: Bound, output: Path, clock: Clock, *, trust_code: bool) -> Report:
    """All stages, from the model to the folder that is left behind."""
    cache = StageCache(cache_folder() / "stages")
    workshop = Workshop(bound, prepare(bound, cache, trust_code=trust_code), cache)
    jobs = planned_jobs(workshop)
    workshop.check()
    wanted = bound.loaded.recipe.auto
    choosing = Choosing(workshop, wanted) if wanted is not None else None
    statistics = Statistics(workshop, jobs)
    if bound.plan is not None:
        check_plan(workshop, jobs, statistics)
    if choosing is None:
        statistics.gather()  # before the long work of evaluating FP32
    reference = workshop.evaluate_baseline()
    outcomes, baselines = _candidates(workshop, jobs, statistics, reference, choosing)
    mixed = [
        mixed_candidate(workshop, target, jobs, statistics, reference=reference, uniform=outcomes, baseline=base)
        for target, base in (baselines.items() if bound.plan is not None else ())
    ]
    outcomes += [found.outcome for found in mixed]
    delivering = deliver(workshop, outcomes, baselines, reference)
    outcomes += delivering.outcomes
    times = _times(workshop, outcomes, baselines) if choosing is None else (choosing.latency, choosing.first)
    findings = Findings(reference, statistics.table, outcomes, baselines, *times, choosing.choices() if choosing is not None else ())
    findings = replace(findings, delivered=delivering.delivered, mixing=tuple(found.row for found in mixed if found.row is not None))
    report = make_report(workshop, findings, clock)
    write_folder(output, report, outcomes, baselines, statistics.table)
    return report


@contextmanager
def no_exit(where: str) -> Iterator[None]:
    """Code that a recipe names must not end the process: its exit code would be read as a verdict.

    Raises:
        RunError: It tried to.
    """
    try:
        yield
    except SystemExit as error:
        what = f"code that the recipe names ended the process, with exit code {error.code}"
        raise RunError(what, where=where, hint="a function that a recipe names must return its result, or raise an error") from error


def planned_jobs(workshop: Workshop) -> list[Job]:
    """Every scheme on every target, with its plan or with the reason why there is none.

    Raises:
        PlanError: No scheme finds anything to quantize in this model.
    """
    jobs = []
    for target, engine in workshop.bound.targets.items():
        here = engine.available()
        for scheme in cheapest_first(workshop, target):
            plan = workshop.plan(scheme, target)
            if not here.available:
                jobs.append(Job(scheme, target, status="not available", reason=f"{here.reason}; {here.install}".strip("; ")))
            elif not plan.quantized:
                reasons = sorted({choice.reason for choice in plan.layers}) or [no_layers(workshop.prepared.path)]
                jobs.append(Job(scheme, target, status="not applicable", reason=f"nothing to quantize: {'; '.join(reasons)}"))
            elif (obstacle := training_obstacle(workshop, scheme)) is not None:
                jobs.append(Job(scheme, target, status="not applicable", reason=obstacle))
            else:
                jobs.append(Job(scheme, target, plan))
    if all(job.status == "not available" for job in jobs):
        missing = "; ".join(sorted({f"{job.target}: {job.reason}" for job in jobs}))
        raise TargetError(
            f"none of the recipe's targets can be used here: {missing}", where=workshop.bound.loaded.where(("targets",)), hint="`quant doctor` shows what can"
        )
    if all(job.plan is None for job in jobs):
        raise PlanError(
            "no scheme finds anything to quantize in this model: " + "; ".join(sorted({f"{job.scheme}: {job.reason}" for job in jobs})),
            where=workshop.bound.loaded.where(("schemes",)),
            hint="quantizable layers are Conv, ConvTranspose, Gemm, MatMul and Gather (of a table) in FP32; `quant inspect` lists those of a model",
        )
    return jobs


def _candidates(
    workshop: Workshop, jobs: Sequence[Job], statistics: Statistics, reference: Baseline, choosing: Choosing | None
) -> tuple[list[Outcome], dict[str, Built]]:
    baselines: dict[str, Built] = {}
    refused: dict[str, TargetError] = {}
    outcomes = []
    for job in jobs:
        if job.plan is not None and job.target not in baselines and job.target not in refused:
            try:
                baselines[job.target] = workshop.build_baseline(job.target)
            except TargetError as error:
                refused[job.target] = error
        in_fp32 = _in_fp32(refused[job.target]) if job.target in refused else ""
        if job.plan is not None and in_fp32 and not workshop.bound.targets[job.target].ahead_of_time:
            outcomes.append(Outcome(job.scheme, job.target, status="failed", reason=in_fp32, fails=True))
        elif job.plan is not None and workshop.bound.plan is not None and workshop.bound.plan.file is not None:
            outcomes.append(Outcome(job.scheme, job.target, status="not tried", reason=f"the plan in {workshop.bound.plan.file.name} is carried out"))
        elif job.plan is not None and choosing is not None and (found := choosing.found(job.target)) is not None:
            outcomes.append(Outcome(job.scheme, job.target, status="not tried", reason=f"{found} passed before"))
        else:
            # A GPU may have no products in FP32, and yet run what was quantized: where nothing is timed, only its size has nothing beside it.
            outcomes.append(_told(_candidate(workshop, job, statistics, reference), in_fp32 if job.plan is not None else ""))
            if choosing is not None and job.plan is not None:
                choosing.take(outcomes[-1], baselines.get(job.target))
    said = {outcome.reason for outcome in outcomes if outcome.status in {"failed", "measured"}}
    if not baselines and said <= {_in_fp32(each) for each in refused.values()}:
        target, first = next(iter(refused.items()))
        raise first.at(workshop.bound.loaded.where(("targets", list(workshop.bound.targets).index(target))))
    return outcomes, baselines


def _in_fp32(error: TargetError) -> str:
    return f"the engine refuses the model already in FP32: {one_line(error)}"


def _told(outcome: Outcome, in_fp32: str) -> Outcome:
    """The outcome, with what became of FP32 in its engine; once, where that is what became of the outcome itself."""
    if in_fp32 and outcome.reason and in_fp32.endswith(outcome.reason):
        return replace(outcome, reason=in_fp32)
    if in_fp32 and outcome.built is not None:
        return replace(outcome, reason="; ".join(filter(None, (outcome.reason, f"no size beside FP32's: {in_fp32}"))))
    return outcome


def _candidate(workshop: Workshop, job: Job, statistics: Statistics, reference: Baseline) -> Outcome:
    """One scheme on one target."""
    plan = job.plan
    if plan is None:
        return Outcome(job.scheme, job.target, status=job.status, reason=job.reason)
    scheme = workshop.bound.schemes[job.scheme]
    emulated = study_of(scheme) or workshop.bound.targets[job.target].emulates(scheme.base)

    def build() -> Built:
        return workshop.build(job.scheme, job.target, plan, statistics.table_for(job))

    return judged(workshop, build, reference, scheme=job.scheme, target=job.target, plan=plan, emulated=emulated)


def _times(workshop: Workshop, outcomes: Sequence[Outcome], baselines: dict[str, Built]) -> tuple[dict[str, Latency], dict[str, FirstRun]]:
    latency: dict[str, Latency] = {}
    first: dict[str, FirstRun] = {}
    for target, base in baselines.items():
        if workshop.bound.targets[target].ahead_of_time:
            continue  # its engines run elsewhere; the time of what stands in for them says nothing
        built = [base, *(o.built for o in outcomes if o.built is not None and o.measured is not None and o.target == target)]
        timed, started = time_artifacts(workshop, built)
        latency |= timed
        first |= started
    return latency, first
