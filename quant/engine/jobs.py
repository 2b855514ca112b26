"""What a run has before it: schemes on targets, and what all of them must know of activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quant.core.documents import PrecisionPlan
from quant.core.table import CalibrationTable
from quant.engine.candidates import Workshop
from quant.engine.summary import Status


@dataclass(frozen=True)
class Job:
    """One scheme on one target, planned; `reason` says why it cannot run."""

    scheme: str
    target: str
    plan: PrecisionPlan | None = None
    status: Status = "measured"
    reason: str = ""


class Statistics:
    """What calibration sees for all jobs, in one pass, which is made when the first of them needs it.

    Args:
        workshop: What the candidates share.
        jobs: All of them.
    """

    def __init__(self, workshop: Workshop, jobs: Sequence[Job]) -> None:
        self._workshop, self._jobs = workshop, jobs
        self._gathered = False
        self.table: CalibrationTable | None = None

    def gather(self) -> None:
        """Make the pass, if it was not made."""
        bound = self._workshop.bound
        if not self._gathered:
            self.table = self._workshop.calibrate([(bound.schemes[j.scheme], bound.targets[j.target], j.plan) for j in self._jobs if j.plan is not None])
        self._gathered = True

    def table_for(self, job: Job) -> CalibrationTable | None:
        """The table, if `job` needs one."""
        bound = self._workshop.bound
        if bound.schemes[job.scheme].data != "none" or bound.targets[job.target].dialect.body != "fp32":
            self.gather()
        return self.table
