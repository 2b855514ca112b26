"""One scheme on one target, as an artifact in a folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from quant.core.documents import Artifact
from quant.core.files import whole_folder
from quant.core.registry import did_you_mean
from quant.engine.auditing import PLAN_FILE
from quant.engine.candidates import Workshop
from quant.engine.jobs import Statistics
from quant.engine.run import planned_jobs
from quant.errors import QuantError, RunError
from quant.stages.first_run import ARTIFACT_FILE


def export_candidate(workshop: Workshop, folder: Path, *, scheme: str | None = None, target: str | None = None) -> Artifact:
    """The artifact that a run of the same recipe would make, and its plan, in `folder`.

    Args:
        workshop: The recipe, with its model and data.
        folder: Where it goes; an artifact that is there already goes.
        scheme: Title of the scheme; the recipe's first that has a plan there, when not given.
        target: Title of the target; the recipe's first when not given.

    Raises:
        QuantError: There is no such scheme or target, it finds nothing to quantize, the engine refuses it, or the folder holds something else.
    """
    if folder.exists() and not (folder.is_dir() and ((folder / ARTIFACT_FILE).is_file() or not any(folder.iterdir()))):
        raise RunError("holds something else than an artifact", where=str(folder), hint="give an empty or a new folder")
    bound = workshop.bound
    on = _named("target", target, list(bound.targets)) or next(iter(bound.targets))
    wanted = _named("scheme", scheme, list(bound.schemes))
    jobs = planned_jobs(workshop)
    here = [job for job in jobs if job.target == on and job.scheme == (wanted or job.scheme)]
    job = next((job for name in bound.schemes for job in here if job.scheme == name and job.plan is not None), None)
    if job is None or job.plan is None:
        raise QuantError("; ".join(f"{one.scheme} on {one.target} is {one.status}: {one.reason}" for one in here), where=bound.loaded.where(("schemes",)))
    built = workshop.build(job.scheme, job.target, job.plan, Statistics(workshop, jobs).table_for(job))
    with whole_folder(folder) as part:
        shutil.copytree(built.folder, part, dirs_exist_ok=True)
        assert built.plan is not None, "what was planned has a plan"
        built.plan.save(part / PLAN_FILE)
    return built.artifact


def _named(what: str, name: str | None, known: Sequence[str]) -> str | None:
    if name is not None and name not in known:
        raise QuantError(f"the recipe has no {what} {name!r}", hint=did_you_mean(name, known))
    return name
