"""Audit an artifact that lies somewhere: what its engine, on this machine, runs for each layer of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from quant.core.arguments import with_checked_arguments
from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, AuditRow, PrecisionPlan
from quant.core.shown import Chart, Shown, Table
from quant.errors import QuantError, RunError, TargetError
from quant.graph.model import read_model
from quant.stages.first_run import ARTIFACT_FILE
from quant.targets import TARGETS

PLAN_FILE = "plan.json"
"""The plan beside an artifact that was written by itself."""
_HINT = "give the plan with --plan"


@dataclass(frozen=True)
class Audited(Shown):
    """An artifact that was audited.

    Args:
        audit: Planned format against what runs, layer by layer.
        emulated: Why the engine has no arithmetic of its own for the plan's format on this machine; None when it has.
    """

    audit: Audit
    emulated: str | None

    @property
    def wrong(self) -> tuple[AuditRow, ...]:
        """The layers that count against the artifact: all that run otherwise, but those that the engine emulates by nature."""
        return self.audit.disagreements if self.emulated is None else ()

    def as_table(self) -> Table:
        """Layer by layer, what was planned and what runs; the layers that differ first."""
        table = self.audit.as_table()
        return table if self.emulated is None else replace(table, facts={**table.facts, "emulated": self.emulated})

    def as_chart(self) -> Chart:
        """How many layers were planned in each format, and how many run in it."""
        return self.audit.as_chart()


@with_checked_arguments
def audit(path: Path | str, *, plan: Path | str | None = None, target: str | None = None) -> Audited:
    """What the engine runs for every layer of a plan.

    Args:
        path: Folder of an artifact, as a run leaves it in `artifacts/TARGET/SCHEME`; or a model file, with `target`.
        plan: File of the precision plan; when not given, the one that `export` left beside the artifact, or that of the run that it lies in.
        target: The engine of a model file that comes without `artifact.json`.

    Raises:
        QuantError: Artifact or plan cannot be read or do not belong together, or the engine is not available here.
    """
    path = Path(path)
    found = _artifact_folder(path)
    made, folder = (Artifact.load(found / ARTIFACT_FILE), found) if found else (None, path.parent)
    wanted = PrecisionPlan.load(Path(plan) if plan is not None else _plan_of(found, path))
    if made is None:
        artifact, layers = _bare(path, target, wanted)
    else:
        artifact, layers = _whole(made, folder, target), made.layers
        if missing := [choice.layer for choice in wanted.layers if choice.layer not in layers]:
            raise RunError(
                f"the plan names layer {missing[0]!r}, which the artifact does not have", where=str(folder), hint="give the plan that it was made from"
            )
    engine = TARGETS.make(artifact.target, dict(artifact.options))
    here = engine.available()
    if not here.available:
        raise TargetError(f"{artifact.target} is not available here: {here.reason}", where=str(path), hint=here.install)
    told = {choice.layer: layers.get(choice.layer, choice.layer) for choice in wanted.layers}
    found_out = engine.audit(artifact, folder, wanted, told)
    if found_out.unaudited:
        raise TargetError(f"there is nothing to audit: {found_out.unaudited}", where=str(path))
    return Audited(found_out, None if engine.ahead_of_time else engine.emulates(wanted.base))


def _artifact_folder(path: Path) -> Path | None:
    """The artifact's folder, when `path` is it or the artifact's main file."""
    if path.is_dir():
        if not (path / ARTIFACT_FILE).is_file():
            raise RunError(f"holds no {ARTIFACT_FILE}", where=str(path), hint="give a folder artifacts/TARGET/SCHEME of a run, or a model file with --target")
        return path
    if not path.is_file():
        raise RunError("no such artifact", where=str(path), hint="give a folder artifacts/TARGET/SCHEME of a run, or a model file with --target")
    for folder in path.parents:
        if (folder / ARTIFACT_FILE).is_file():
            return folder if Artifact.load(folder / ARTIFACT_FILE).main == path.relative_to(folder).as_posix() else None
    return None


def _plan_of(folder: Path | None, path: Path) -> Path:
    """The plan beside the artifact, or in the folder of the run that it lies in."""
    if folder is None:
        raise RunError("a model file alone has no plan", where=str(path), hint=_HINT)
    if (beside := folder / PLAN_FILE).is_file():
        return beside
    place = folder.resolve()
    plan = place.parents[2] / "plans" / place.parent.name / f"{place.name}.json" if len(place.parents) > 2 else place  # noqa: PLR2004 - artifacts/TARGET/SCHEME
    if not plan.is_file():
        raise RunError("the plan that it was made from does not lie beside it", where=str(folder), hint=_HINT)
    return plan


def _whole(artifact: Artifact, folder: Path, target: str | None) -> Artifact:
    """`artifact`, whose files are what was written."""
    if target not in {None, artifact.target}:
        raise RunError(f"the artifact is for {artifact.target!r}, not for {target!r}", where=str(folder), hint="leave --target out")
    for name, digest in artifact.files.items():
        file = folder / name
        if not file.is_file() or digest_of_file(file) != digest:
            raise RunError(f"{name} is {'no longer what was written' if file.is_file() else 'missing'}", where=str(folder), hint="run the recipe again")
    return artifact


def _bare(path: Path, target: str | None, plan: PrecisionPlan) -> tuple[Artifact, Mapping[str, str]]:
    """A model file as an artifact; in an ONNX file, a layer makes what the node of its name makes."""
    if target is None:
        raise QuantError("nothing says which engine this file is for", where=str(path), hint="name it with --target")
    layers: dict[str, str] = {}
    if path.suffix == ".onnx":
        layers = {str(node.name): str(node.outputs[0].name) for node in read_model(path).graph if node.name}
    size = path.stat().st_size
    return Artifact(target=target, scheme=plan.scheme, main=path.name, files={path.name: digest_of_file(path)}, size_bytes=size), layers
