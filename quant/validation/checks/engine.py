"""The engine: it loads the artifact afresh, runs each layer as planned, and means by it what the graph means."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from evaluators.agreement import OutputAgreement
from quant.engine.agreeing import agreement
from quant.engine.fallback import UNKNOWN, judge
from quant.schemes import study_of
from quant.validation.check import CHECKS, OfCandidate
from quant.validation.findings import Checked, Finding, judged, skipped
from quant.validation.subject import Subject

_BARE = "there is no plan: FP32, or an artifact apart from its run"
_NOT_LOADED = "a fresh process cannot run it"


@CHECKS.add
class Reload(OfCandidate):
    """A fresh process loads the artifact and answers."""

    kind: ClassVar[str] = "reload"
    title: ClassVar[str] = "a fresh process loads it and answers"
    order: ClassVar[int] = 58

    def look(self, subject: Subject) -> Checked:
        """Start one."""
        file = subject.path_of(subject.seen.artifact.main)
        if why := subject.fault:
            return judged([Finding(kind="file", where=file, file=file, what=why)], "")
        return Checked(status="ok", said=f"loaded in {subject.fresh.served.load_s:.2f} s")


@CHECKS.add
class AuditAgain(OfCandidate):
    """The engine runs every planned layer in its format."""

    kind: ClassVar[str] = "audit"
    title: ClassVar[str] = "the engine runs every layer as planned"
    order: ClassVar[int] = 70

    def look(self, subject: Subject) -> Checked:
        """Audit the artifact again, against the plan that was made anew."""
        made = subject.seen
        if made.plan is None:
            return _bare(subject)
        if subject.fault:
            return skipped(_NOT_LOADED)
        audit = subject.audit
        if audit.unaudited:
            return skipped(audit.unaudited)
        bound = subject.workshop.bound
        engine = bound.targets[subject.target]
        scheme = bound.schemes.get(subject.scheme)  # none of a plan that mixes formats
        study = study_of(scheme) if scheme is not None else None
        emulated = (study or engine.emulates(made.plan.base)) is not None and not engine.ahead_of_time
        said, fails = judge(audit, made.plan, emulated=emulated, allowed=engine.options.allow_fallback)
        rows = [row for row in audit.disagreements if row.layer in made.plan.quantized and row.runs != UNKNOWN] if fails else []
        file = subject.path_of(made.artifact.main)
        found = [Finding(kind="layer", where=r.layer, tensor=r.kernel, file=file, what=f"is planned in {r.planned}, runs in {r.runs}") for r in rows]
        return judged(found, said or f"{len(made.plan.quantized)} layers in {made.plan.base}" + (" (emulated)" if emulated else ""))


def _bare(subject: Subject) -> Checked:
    """Of an artifact without a plan: whether any layer at all runs in the format of its scheme, where the recipe has one of that name."""
    job = subject.delivery.job(subject.scheme, subject.target)
    if job is None or job.plan is None or not job.plan.quantized:
        return skipped(_BARE)
    if subject.fault:
        return skipped(_NOT_LOADED)
    audit = subject.workshop.audit(replace(subject.seen, plan=job.plan))
    engine = subject.workshop.bound.targets[subject.target]
    if audit.unaudited or (engine.emulates(job.plan.base) is not None and not engine.ahead_of_time):
        return skipped(audit.unaudited or _BARE)
    rows = [row for row in audit.rows if row.layer in job.plan.quantized]
    as_said = sum(row.agrees for row in rows)
    if not as_said and all(row.runs != UNKNOWN for row in rows):
        file, runs = subject.path_of(subject.seen.artifact.main), ", ".join(sorted({row.runs for row in rows}))
        what = f"is called {subject.scheme}, and the engine runs none of its layers in {job.plan.base}: they run in {runs}"
        return judged([Finding(kind="file", where=file, file=file, what=what)], "")
    return Checked(status="ok", said=f"{as_said} of {len(rows)} layers in {job.plan.base}; how many were planned, an artifact apart from its run does not say")


@CHECKS.add
class AgreementAgain(OfCandidate):
    """The engine gives what plain ONNX arithmetic gives for the graph that plan, table and FP32 model make."""

    kind: ClassVar[str] = "agreement"
    title: ClassVar[str] = "the engine means what the graph means"
    order: ClassVar[int] = 90

    def look(self, subject: Subject) -> Checked:
        """Compare its outputs."""
        if subject.expected is None:
            return skipped(_BARE)
        if subject.fault:
            return skipped(_NOT_LOADED)
        found = agreement(subject.workshop, subject.seen)
        if found is None:
            return skipped("nothing is compared: the recipe asks for no samples, or the engine runs elsewhere")
        if found.agrees is None:
            return skipped(found.reason)
        off = [one for one in found.outputs if not one.agrees]
        layer = found.parting.layer if found.parting is not None else ""
        told = [Finding(kind="layer" if layer else "tensor", where=layer or one.output, tensor=one.output, what=_deviation(one)) for one in off]
        return judged(told, f"{len(found.outputs)} outputs on {found.samples} samples")


def _deviation(one: OutputAgreement) -> str:
    if one.not_finite:
        return f"output {one.output!r} has {one.not_finite} values that are not finite, where the graph that was made anew has numbers"
    if one.deviation_db is None:
        return f"output {one.output!r} is not what the graph that was made anew gives"
    noise = "" if one.noise_db is None else f", rounding alone explains {one.noise_db:.1f} dB"
    return f"output {one.output!r} is {one.deviation_db:.1f} dB from what the graph that was made anew gives{noise}"
