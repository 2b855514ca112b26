"""What checks look at: the run or the artifact as it lies there, and beside it the same made anew from the sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, PrecisionPlan, Verdict
from quant.core.table import CalibrationTable
from quant.engine.bind import BASELINE
from quant.engine.candidates import Baseline, Built, Measured, Workshop
from quant.engine.delivering import fallback_job, fallback_table
from quant.engine.gating import gate_candidate
from quant.engine.jobs import Job, Statistics
from quant.engine.machine import environment
from quant.engine.mixing.binding import TITLE
from quant.engine.mixing.closing import mixed_artifact
from quant.engine.mixing.ground import Ground
from quant.engine.mixing.shares import at_least_as_sure
from quant.engine.run import planned_jobs
from quant.errors import QuantError, RunError
from quant.report.document import Report
from quant.report.load import load_report
from quant.stages.first_run import ARTIFACT_FILE
from quant.validation.fresh import Fresh, Serving, serve
from quant.validation.tolerance import ROUNDING, different_tensors

TABLE = "calibration"


@dataclass(frozen=True)
class Delivery:
    """What is to be deployed, and the workshop in which it is made anew.

    Args:
        folder: The run's folder; None when a single artifact is validated.
        workshop: Model and data, brought in anew from their sources, with a cache that nothing else has written.
        own_recipe: Whether the recipe is the one that lies in the run's folder.
        serving: How the load test is made.
        scratch: A folder for what is handed to fresh processes.
    """

    folder: Path | None
    workshop: Workshop
    own_recipe: bool
    serving: Serving
    scratch: Path

    @cached_property
    def report(self) -> Report:
        """The run's report, as it is written there.

        Raises:
            RunError: It cannot be read.
        """
        assert self.folder is not None, "a single artifact comes without a report"
        return load_report(self.folder)

    @cached_property
    def elsewhere(self) -> bool:
        """Whether the report says that the run was computed with other libraries or on another processor than these."""
        try:
            return self.folder is not None and self.report.environment != environment()
        except RunError:
            return False

    @cached_property
    def jobs(self) -> list[Job]:
        """Every scheme on every target, planned anew."""
        return planned_jobs(self.workshop)

    @cached_property
    def statistics(self) -> Statistics:
        """The calibration of all jobs, made when it is first needed."""
        return Statistics(self.workshop, self.jobs)

    @cached_property
    def table(self) -> CalibrationTable | None:
        """What calibration sees now."""
        self.statistics.gather()
        return self.statistics.table

    @cached_property
    def table_to_apply(self) -> CalibrationTable | None:
        """`table`; with what the run saw on its machine, where that is the same but for other rounding."""
        fresh = self.table
        if fresh is None or self.folder is None or not self.elsewhere:
            return fresh
        try:
            stored = CalibrationTable.load(self.folder / TABLE)
        except RunError:
            return fresh
        if different_tensors(fresh, stored, tolerance=ROUNDING):
            return fresh
        return replace(fresh, statistics=stored.statistics, magnitudes=stored.magnitudes, means=stored.means)

    def job(self, scheme: str, target: str) -> Job | None:
        """The job of a candidate; None when the recipe has none."""
        return next((job for job in self.jobs if (job.scheme, job.target) == (scheme, target)), None)

    @cached_property
    def baseline(self) -> Baseline:
        """FP32 on the evaluation samples."""
        return self.workshop.evaluate_baseline()


@dataclass(frozen=True)
class Subject:
    """One candidate that is to be deployed, or the run as a whole (then without scheme and target).

    Args:
        delivery: What it is part of.
        scheme: Title of its scheme.
        target: Title of its target.
        folder: Where its files are.
        shown: How findings call its folder.
    """

    delivery: Delivery
    scheme: str = ""
    target: str = ""
    folder: Path = Path()
    shown: str = ""

    @property
    def name(self) -> str:
        """`scheme on target`; empty for the run as a whole."""
        return f"{self.scheme} on {self.target}" if self.scheme else ""

    @property
    def workshop(self) -> Workshop:
        """Where it is made anew; a mixed plan that was judged in one of several looks is held to what that look was held to."""
        workshop = self.delivery.workshop
        if self.scheme != TITLE or workshop.bound.plan is None or self.delivery.folder is None:
            return workshop
        row = next((c for c in self.delivery.report.candidates if (c.scheme, c.target) == (self.scheme, self.target)), None)
        return at_least_as_sure(workshop, [gate.verdict.confidence for gate in row.gates] if row is not None else [])

    @cached_property
    def stored(self) -> Artifact:
        """What `artifact.json` says of it.

        Raises:
            RunError: It cannot be read.
        """
        return Artifact.load(self.folder / ARTIFACT_FILE)

    @cached_property
    def expected(self) -> Built | None:
        """The artifact as plan, table and FP32 model make it now; None for an artifact that comes without them.

        Raises:
            RunError: The recipe does not make such a candidate.
            QuantError: The engine refuses what is made.
        """
        if self.delivery.folder is None:
            return None
        if self.scheme == BASELINE:
            return self.workshop.build_baseline(self.target)
        if self.scheme == TITLE and self.workshop.bound.plan is not None:
            return self._mixed()
        job = self.delivery.job(self.scheme, self.target)
        stands_by = job is None and self.scheme in self.workshop.bound.fallbacks
        if stands_by:
            job = fallback_job(self.workshop, self.scheme, self.target)
        if job is None or job.plan is None:
            why = f": {job.reason}" if job is not None else ""
            raise RunError(f"the recipe makes no {self.name}{why}", where=self.shown)
        table = fallback_table(self.workshop, job) if stands_by else self.delivery.table_to_apply if self._needs_table(job) else None
        return self.workshop.build(self.scheme, self.target, job.plan, table)

    def _mixed(self) -> Built:
        """The plan that mixes formats, applied anew: which formats were chosen depends on measured times, so that the choice itself is taken as it is."""
        assert self.delivery.folder is not None
        plan = PrecisionPlan.load(self.delivery.folder / "plans" / self.target / f"{TITLE}.json")
        jobs = {job.scheme: job for job in self.delivery.jobs if job.target == self.target}
        return mixed_artifact(Ground(self.workshop, self.target, jobs, self.delivery.statistics), plan)

    def _needs_table(self, job: Job) -> bool:
        bound = self.workshop.bound
        return bound.schemes[job.scheme].data != "none" or bound.targets[job.target].dialect.body != "fp32"

    @cached_property
    def files(self) -> dict[str, str]:
        """Path below its folder -> SHA-256 of every file that lies there now, but `artifact.json`."""
        paths = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        found = {path.relative_to(self.folder).as_posix(): digest_of_file(path) for path in paths}
        return {name: digest for name, digest in found.items() if name != ARTIFACT_FILE}

    @cached_property
    def unrepeatable(self) -> frozenset[str]:
        """Files of the artifact that its engine writes otherwise each time, so that it does not name their digests; they are judged by what they do."""
        made = self.expected
        if made is None:
            return frozenset(set(self.files) - set(self.stored.files))
        paths = {path.relative_to(made.folder).as_posix() for path in made.folder.rglob("*") if path.is_file()}
        return frozenset(paths - set(made.artifact.files) - {ARTIFACT_FILE})

    @cached_property
    def seen(self) -> Built:
        """The artifact as it lies there: its own files, and of what it should be only what it takes to open it."""
        made = self.expected
        artifact = (made.artifact if made is not None else self.stored).model_copy(update={"files": self.files})
        if made is not None:
            return replace(made, artifact=artifact, folder=self.folder)
        return Built(self.scheme, self.target, artifact, self.folder, None, {}, self.folder / artifact.main)

    @property
    def main(self) -> Path:
        """The file to open first."""
        return self.folder / self.seen.artifact.main

    def path_of(self, name: str) -> str:
        """How a finding calls one of its files."""
        return f"{self.shown}/{name}" if self.shown else name

    @property
    def layers(self) -> Mapping[str, str]:
        """Layer -> the tensor that it makes."""
        return self.workshop.layer_outputs

    @cached_property
    def fresh(self) -> Fresh:
        """What a fresh process made of it.

        Raises:
            QuantError: It could not be loaded, or the process died.
        """
        return serve(self.workshop, self.seen, self.delivery.serving, self.delivery.scratch)

    @cached_property
    def measured(self) -> Measured:
        """The artifact on the evaluation samples."""
        return self.workshop.evaluate(self.seen, self.delivery.baseline)

    @cached_property
    def verdicts(self) -> dict[int, Verdict]:
        """Number of each gate -> its verdict."""
        return gate_candidate(self.workshop, self.seen, self.delivery.baseline.predictions, self.measured.predictions)

    @cached_property
    def audit(self) -> Audit:
        """What the engine runs for each planned layer."""
        return self.workshop.audit(self.seen)

    @cached_property
    def fault(self) -> str:
        """Why a fresh process cannot run it; empty when it can."""
        try:
            _ = self.fresh
        except QuantError as error:
            return " ".join(error.what.split())
        return ""
