"""Inputs and outputs are the FP32 model's: names, order, types, fixed and open dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from quant.core.signature import TensorSpec
from quant.graph.model import read_model, signature
from quant.report.words import count
from quant.validation.check import CHECKS, OfCandidate
from quant.validation.findings import Checked, Finding, judged
from quant.validation.subject import Subject


@CHECKS.add
class Contract(OfCandidate):
    """The artifact's inputs and outputs are those of the FP32 model, as written and as they come out."""

    kind: ClassVar[str] = "contract"
    title: ClassVar[str] = "inputs and outputs are the FP32 model's"
    order: ClassVar[int] = 60

    def look(self, subject: Subject) -> Checked:
        """Compare what the graph declares, and what a fresh process gives."""
        wanted = subject.workshop.prepared.signature
        file = subject.path_of(subject.seen.artifact.main)
        found = []
        if subject.main.suffix == ".onnx":
            declared = signature(read_model(subject.main))
            found += [*_specs("input", wanted.inputs, declared.inputs, file), *_specs("output", wanted.outputs, declared.outputs, file)]
        if not found and not subject.fault:
            found += _given(subject, wanted.outputs, file)
        return judged(found, f"{count(len(wanted.inputs), 'input')} and {count(len(wanted.outputs), 'output')}")


def _specs(noun: str, wanted: Sequence[TensorSpec], found: Sequence[TensorSpec], file: str) -> list[Finding]:
    names, there = [spec.name for spec in wanted], [spec.name for spec in found]
    if sorted(names) == sorted(there) and names != there:
        return [_finding(there[0], f"the {noun}s come in the order {there}, FP32 has {names}", file)]
    told = [_finding(name, f"FP32 has this {noun}, the artifact has {there}", file) for name in names if name not in there]
    told += [_finding(name, f"is an {noun} that FP32 does not have", file) for name in there if name not in names]
    now = {spec.name: spec for spec in found}
    return told + [_finding(spec.name, f"{noun} is {now[spec.name]}, FP32's is {spec}", file) for spec in wanted if now.get(spec.name, spec) != spec]


def _given(subject: Subject, wanted: Sequence[TensorSpec], file: str) -> list[Finding]:
    """What really comes out, on a usual request."""
    fresh = subject.fresh
    names, there = [spec.name for spec in wanted], list(fresh.served.outputs)
    if names != there:
        return [_finding(next(iter(there), ""), f"the engine's outputs are {there}, FP32 has {names}", file)]
    first = fresh.served.answers[0]
    if first.error or first.request not in fresh.fp32:
        return []
    one, other = fresh.fp32[first.request], fresh.outputs(first)
    shown = {name: (f"{one[name].dtype} {list(one[name].shape)}", f"{other[name].dtype} {list(other[name].shape)}") for name in names}
    return [_finding(name, f"comes out as {now}, of FP32 as {was}", file) for name, (was, now) in shown.items() if was != now]


def _finding(name: str, what: str, file: str) -> Finding:
    return Finding(kind="tensor", where=name, what=what, file=file)
