"""Plan and artifact are what FP32 model, recipe and calibration table make: both are made again and compared, the graph layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from quant.core.documents import PrecisionPlan
from quant.engine.mixing.binding import TITLE
from quant.errors import ModelError, QuantError
from quant.graph.model import read_model
from quant.report.words import count
from quant.validation.check import CHECKS, OfCandidate
from quant.validation.findings import Checked, Finding, judged, skipped
from quant.validation.graphs import differences
from quant.validation.own_files import own_files
from quant.validation.subject import Subject

_BARE = "a single artifact comes without plan and table"


@CHECKS.add
class Plan(OfCandidate):
    """The stored plan is the one that is carried out for this model."""

    kind: ClassVar[str] = "plan"
    title: ClassVar[str] = "the plan is that of this model and recipe"
    order: ClassVar[int] = 40

    def look(self, subject: Subject) -> Checked:
        """Plan again, and compare every layer."""
        made, folder = subject.expected, subject.delivery.folder
        if made is None or made.plan is None or folder is None:
            return skipped("there is no plan: FP32, or an artifact apart from its run")
        file = f"plans/{subject.target}/{subject.scheme}.json"
        stored = PrecisionPlan.load(folder / file)
        was, now = ({choice.layer: choice for choice in plan.layers} for plan in (stored, made.plan))
        found = [_layer(name, "is not in the plan", file) for name in now if name not in was]
        found += [_layer(name, "is in the plan, the model has no such layer", file) for name in was if name not in now]
        for name in (name for name in now if name in was and was[name] != now[name]):
            found.append(_layer(name, f"is planned in {was[name].format} ({was[name].reason}), {now[name].format} is right ({now[name].reason})", file))
        if not found and stored != made.plan:
            found.append(Finding(kind="file", where=file, file=file, what=f"is of scheme {stored.scheme!r} in {stored.base}, in another order or form"))
        chosen = "; which formats, was found by measuring, and is taken as it is" if subject.scheme == TITLE else ""
        return judged(found, f"{len(now)} layers, {len(made.plan.quantized)} of them quantized{chosen}")


@CHECKS.add
class Identity(OfCandidate):
    """The artifact is, byte for byte, what FP32 model, plan and table make; where it is not, the layers that differ are named."""

    kind: ClassVar[str] = "identity"
    title: ClassVar[str] = "the artifact is what plan, table and FP32 model make"
    order: ClassVar[int] = 50

    def look(self, subject: Subject) -> Checked:
        """Make it again, and compare."""
        made = subject.expected
        if made is None:
            return skipped(_BARE)
        found = _description(subject)
        own = subject.unrepeatable
        found += [_missing(subject, name) for name in sorted(own - set(subject.files))]
        found += own_files(subject)
        for name in sorted({*made.artifact.files, *subject.files} - own):
            if made.artifact.files.get(name) != subject.files.get(name):
                found += _file(subject, name)
        said = f"{count(len(made.artifact.files), 'file')} byte for byte as made anew, {count(len(subject.layers), 'layer')}"
        return judged(found, said + (f"; {count(len(own), 'file')} that the engine writes otherwise each time, {_judged(subject)}" if own else ""))


@CHECKS.add
class BaselineArtifact(OfCandidate):
    """The FP32 artifact of the same engine is the FP32 model."""

    kind: ClassVar[str] = "baseline"
    title: ClassVar[str] = "the FP32 artifact beside it is the FP32 model"
    order: ClassVar[int] = 55

    def look(self, subject: Subject) -> Checked:
        """Make it again, and compare the files."""
        folder = subject.delivery.folder
        if folder is None:
            return skipped(_BARE)
        made = subject.workshop.build_baseline(subject.target)
        place = f"artifacts/{subject.target}/{made.scheme}"
        beside = Subject(subject.delivery, made.scheme, subject.target, folder / place, place)
        names = {*made.artifact.files, *beside.files} - beside.unrepeatable
        off = [name for name in sorted(names) if made.artifact.files.get(name) != beside.files.get(name)]
        what = "is not what the FP32 model makes"
        return judged([Finding(kind="file", where=beside.path_of(n), file=beside.path_of(n), what=what) for n in off], "byte for byte what is made anew")


def _judged(subject: Subject) -> str:
    if not subject.workshop.bound.targets[subject.target].ahead_of_time:
        return "judged by what they do"
    return "not judged: made with other libraries, or elsewhere" if subject.delivery.elsewhere else "of the same bytes"


def _missing(subject: Subject, name: str) -> Finding:
    return Finding(kind="file", where=subject.path_of(name), file=subject.path_of(name), what="is missing")


def _layer(name: str, what: str, file: str) -> Finding:
    return Finding(kind="layer", where=name, what=what, file=file)


def _description(subject: Subject) -> list[Finding]:
    """What `artifact.json` says, but for the files, which are compared themselves."""
    made, file = subject.expected, subject.path_of("artifact.json")
    assert made is not None
    try:
        was, now = (artifact.model_dump(mode="json", exclude={"files"}) for artifact in (subject.stored, made.artifact))
    except QuantError as error:
        return [Finding(kind="file", where=file, file=file, what=error.what)]
    return [Finding(kind="file", where=file, file=file, what=f"{key} is {was[key]}, {now[key]} is right") for key in sorted(now) if was[key] != now[key]]


def _file(subject: Subject, name: str) -> list[Finding]:
    """What is wrong with one file that is not the same bytes."""
    made, shown = subject.expected, subject.path_of(name)
    assert made is not None
    one, other = made.folder / name, subject.folder / name
    if not other.is_file() or not one.is_file():
        return [Finding(kind="file", where=shown, file=shown, what="is missing" if one.is_file() else "does not belong to the artifact")]
    if other.suffix == ".onnx":
        try:
            found = differences(read_model(one), read_model(other), set(subject.layers), file=shown)
        except ModelError as error:
            return [Finding(kind="file", where=shown, file=shown, what=error.what)]
        if found or not name.endswith(".onnx"):
            return found
    return [Finding(kind="file", where=shown, file=shown, what=_bytes(one, other))]


def _bytes(one: Path, other: Path) -> str:
    was, now = one.stat().st_size, other.stat().st_size
    return f"is not what is made anew ({now} bytes, {was} were expected)" if was != now else "is not, byte for byte, what is made anew"
