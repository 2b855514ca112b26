"""validate: everything that a release engineer must know of a run or an artifact before it goes out. Nothing written before is trusted."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from quant.core.arguments import with_checked_arguments
from quant.core.documents import Artifact, Decision
from quant.core.progress import tracked
from quant.core.registry import did_you_mean
from quant.engine.bind import BASELINE, bind
from quant.engine.cache import StageCache
from quant.engine.candidates import Workshop
from quant.engine.folder import MANIFEST
from quant.engine.machine import environment
from quant.engine.prepare import prepare
from quant.engine.run import no_exit
from quant.errors import QuantError, RunError, TargetError
from quant.recipe.load import LoadedRecipe, load_recipe
from quant.report.load import REPORT_FILE, load_report
from quant.report.words import count
from quant.stages.first_run import ARTIFACT_FILE
from quant.validation.check import CHECKS, Check
from quant.validation.findings import Checked, Finding, Validation
from quant.validation.fresh import Serving
from quant.validation.subject import Delivery, Subject

RECIPE_FILE = "recipe.yaml"
_ARTIFACTS = "artifacts"


@dataclass(frozen=True)
class _Asked:
    """What is to be validated, before anything is looked at."""

    path: Path
    baseline: Path | None
    data: Path | str | None
    overrides: Sequence[str]
    trust_code: bool

    @property
    def is_run(self) -> bool:
        return self.baseline is None


@with_checked_arguments
def validate(
    path: Path | str,
    *,
    candidate: str | None = None,
    baseline: Path | str | None = None,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    trust_code: bool = False,
    work: Path | str | None = None,
    load_s: float | None = None,
    load_threads: int | None = None,
) -> Validation:
    """Validate a run, or a single artifact against an FP32 model.

    Model and data are brought in anew from their sources, the table, the plan and the artifact are made anew, and everything that lies in
    the folder is held to that.

    Args:
        path: Folder of a run; or, with `baseline`, of an artifact.
        candidate: Only this one of the run: `scheme`, or `scheme on target`; those that passed when not given.
        baseline: The FP32 model that an artifact is held to.
        data: The recipe whose data, metrics, gates and limits count; that of the run when not given, whose relative sources then start here.
        overrides: `KEY=VALUE` for values of the recipe.
        trust_code: Whether code that the recipe names may run.
        work: Folder for what is made anew, to be found there by the next validation; a temporary one when not given.
        load_s: Seconds of sustained load; those of the recipe's limits when not given.
        load_threads: Threads under load, likewise.

    Raises:
        QuantError: What was given cannot be validated: no such run or artifact, a recipe, a source or an engine that cannot be had.
    """
    asked = _Asked(Path(path), None if baseline is None else Path(baseline), data, overrides, trust_code)
    if not asked.path.is_dir():
        raise RunError("no such folder", where=str(path), hint="give the folder of a run, or with --baseline and --data that of an artifact")
    with ExitStack() as stack:
        made = Path(work) if work is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quant-validate-")))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quant-fresh-")))
        loaded, own = _recipe(asked)
        with no_exit(loaded.where(())):
            delivery = _delivery(asked, loaded, own=own, made=made, scratch=scratch, load_s=load_s, load_threads=load_threads)
            subjects = _candidates(delivery, asked.path, candidate)
            checked = tuple(_all_checks(delivery, subjects))
    verdict = _verdict(checked)
    names = [subject.name for subject in subjects]
    return Validation(subject=str(path), verdict=verdict, sentence=_sentence(verdict, checked, names), checks=checked, environment=environment())


def _recipe(asked: _Asked) -> tuple[LoadedRecipe, bool]:
    """(the recipe that counts, whether it is the run's own)."""
    if not asked.is_run:
        if asked.data is None:
            raise QuantError("nothing says which data an artifact is to be judged on", where=str(asked.path), hint="name a recipe with --data")
        assert asked.baseline is not None
        return load_recipe(asked.data, [*asked.overrides, f"model.source={asked.baseline.absolute()}"]), False
    if not any((asked.path / name).exists() for name in (MANIFEST, REPORT_FILE)):
        hint = "for a single artifact, name the FP32 model with --baseline and a recipe with --data" if (asked.path / ARTIFACT_FILE).exists() else ""
        raise RunError("this folder holds no run", where=str(asked.path), hint=hint or "give the folder that `quant run` wrote")
    if asked.data is not None:
        return load_recipe(asked.data, asked.overrides), False
    if not (asked.path / RECIPE_FILE).is_file():
        raise RunError(f"holds no {RECIPE_FILE}", where=str(asked.path), hint="name the recipe with --data")
    own = load_recipe(asked.path / RECIPE_FILE, asked.overrides)
    return replace(own, path=Path.cwd()), True


def _delivery(asked: _Asked, loaded: LoadedRecipe, *, own: bool, made: Path, scratch: Path, load_s: float | None, load_threads: int | None) -> Delivery:
    cache = StageCache(made / "stages")
    bound = bind(loaded, trust_code=asked.trust_code)
    workshop = Workshop(bound, prepare(bound, cache, trust_code=asked.trust_code), cache)
    workshop.check()
    limits = loaded.recipe.limits
    serving = Serving(limits.load_s if load_s is None else load_s, limits.load_threads if load_threads is None else load_threads)
    return Delivery(asked.path if asked.is_run else None, workshop, own, serving, scratch)


def _candidates(delivery: Delivery, path: Path, wanted: str | None) -> list[Subject]:
    """What is to be deployed.

    Raises:
        RunError: There is no such candidate.
        TargetError: Its engine is not available here.
    """
    if delivery.folder is None:
        artifact = Artifact.load(path / ARTIFACT_FILE)
        target = _target_of(delivery.workshop, artifact, path)
        found = [Subject(delivery, artifact.scheme, target, path)]
    else:
        found = _of_run(delivery, wanted)
    for subject in found:
        here = delivery.workshop.bound.targets[subject.target].available()
        if not here.available:
            raise TargetError(f"{subject.target} is not available here: {here.reason}", where=subject.name, hint=here.install)
    return found


def _target_of(workshop: Workshop, artifact: Artifact, path: Path) -> str:
    """The recipe's target that an artifact is for."""
    kinds = {title: engine.kind for title, engine in workshop.bound.targets.items()}
    for title, kind in kinds.items():
        if kind == artifact.target:
            return title
    hint = f"give a recipe with that target, or --set targets=[{artifact.target}]"
    raise RunError(f"the artifact is for {artifact.target}, the recipe has {', '.join(kinds)}", where=str(path), hint=hint)


def _of_run(delivery: Delivery, wanted: str | None) -> list[Subject]:
    folder = delivery.folder
    assert folder is not None
    places = sorted(place.parent.relative_to(folder) for place in folder.glob(f"{_ARTIFACTS}/*/*/{ARTIFACT_FILE}"))
    every = {f"{place.name} on {place.parent.name}": place for place in places}
    known = {name: place for name, place in every.items() if place.parent.name in delivery.workshop.bound.targets}
    if wanted is not None:
        chosen = [name for name in known if wanted in {name, known[name].name, known[name].as_posix()}]
        if not chosen:
            raise RunError(f"no candidate is called {wanted!r}", where=str(folder), hint=did_you_mean(wanted, list(known)))
    else:
        passed = _passed(folder)
        chosen = [name for name in known if (known[name].name != BASELINE if passed is None else name in passed)]
        if not chosen:
            raise RunError("no candidate of this run has passed", where=str(folder), hint="name one with --candidate to validate it all the same")
    return [Subject(delivery, known[n].name, known[n].parent.name, folder / known[n], known[n].as_posix()) for n in chosen]


def _passed(folder: Path) -> set[str] | None:
    """The candidates that the report says have passed; None when there is no report that could say so."""
    try:
        report = load_report(folder)
    except RunError:
        return None
    fallen = {f"{one.scheme} on {one.target}" for one in report.delivered if one.scheme == BASELINE}
    return {f"{c.scheme} on {c.target}" for c in report.candidates if c.verdict == "pass"} | fallen


def _all_checks(delivery: Delivery, subjects: Sequence[Subject]) -> Iterator[Checked]:
    whole = Subject(delivery)
    made = sorted((CHECKS.make(kind) for kind in CHECKS), key=lambda check: check.order)
    turns = [(check, whole) for check in made if check.scope == "run"]
    turns += [(check, subject) for subject in subjects for check in made if check.scope == "candidate"]
    for check, subject in tracked(turns, "validating", len(turns)):
        yield _one(check, subject)


def _one(check: Check, subject: Subject) -> Checked:
    """What one check finds; an error in what it looks at is a finding."""
    start = time.monotonic()
    try:
        found = check.look(subject)
    except QuantError as error:
        found = Checked(status="failed", said="1 finding", findings=(_of_error(error, subject),))
    told = {"check": check.kind, "title": check.title, "candidate": subject.name, "seconds": round(time.monotonic() - start, 3)}
    return found.model_copy(update=told)


def _of_error(error: QuantError, subject: Subject) -> Finding:
    """An error as a finding; a place within the folder is named as one."""
    what, where = " ".join(error.what.split()), error.where
    folder = subject.delivery.folder or subject.folder
    for root in (folder, folder.resolve()):
        if where.startswith(f"{root}/"):
            name = where.removeprefix(f"{root}/")
            return Finding(kind="file", where=name, file=name, what=what)
    return Finding(kind="run", where=where or subject.name, what=what)


def _verdict(checked: Sequence[Checked]) -> Decision:
    found = {one.status for one in checked}
    return "fail" if "failed" in found else "inconclusive" if "inconclusive" in found else "pass"


def _sentence(verdict: Decision, checked: Sequence[Checked], names: Sequence[str]) -> str:
    what = ", ".join(names)
    off = [one for one in checked if one.status in {"failed", "inconclusive"}]
    looked = [one for one in checked if one.status != "skipped"]
    left = len(checked) - len(looked)
    if verdict == "pass":
        return f"Pass: {what} may go out; {count(len(looked), 'check')} held" + (f", {left} skipped." if left else ".")
    first = next((str(finding) for one in off for finding in one.findings), off[0].said)
    word = "Fail" if verdict == "fail" else "Inconclusive"
    return f"{word}: {count(len(off), 'check')} of {len(looked)} did not hold for {what}; the first: {first}."
