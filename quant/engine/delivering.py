"""`on_fail`: where no candidate passes on a target, what stands by is tried in turn, and FP32 last, so that there is something to deploy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quant.core.table import CalibrationTable
from quant.engine.bind import BASELINE
from quant.engine.candidates import Baseline, Built, Workshop
from quant.engine.gating import gate_candidate
from quant.engine.jobs import Job
from quant.engine.judging import judged, one_line
from quant.engine.summary import Outcome, artifact_folder, worst
from quant.engine.training import training_obstacle
from quant.errors import QuantError, RunError
from quant.report.delivered import Delivered
from quant.schemes import study_of


@dataclass(frozen=True)
class Delivering:
    """What is delivered on each target.

    Args:
        outcomes: The fallbacks that were tried.
        delivered: One for each target; none when the recipe has no `on_fail`.
    """

    outcomes: tuple[Outcome, ...] = ()
    delivered: tuple[Delivered, ...] = ()


def deliver(workshop: Workshop, outcomes: Sequence[Outcome], baselines: Mapping[str, Built], reference: Baseline) -> Delivering:
    """Choose what is delivered on each target that has an FP32 artifact, and try fallbacks where nothing passes.

    Args:
        workshop: What all candidates share.
        outcomes: What became of the candidates.
        baselines: Target -> its FP32 artifact.
        reference: FP32 on the evaluation samples.

    Raises:
        RunError: The disk is full, or cannot be written.
    """
    tried: list[Outcome] = []
    found: list[Delivered] = []
    targets = list(dict.fromkeys(o.target for o in outcomes if o.status in {"measured", "failed"})) if workshop.bound.fallbacks else []
    for target in targets:
        own = [outcome for outcome in outcomes if outcome.target == target]
        passing = min((o for o in own if o.verdict == "pass" and o.built is not None), key=_size, default=None)
        if passing is None:
            new, delivered = _fall_back(workshop, target, own, baselines.get(target), reference)
            tried += new
            found.append(delivered)
        else:
            found.append(Delivered(target=target, scheme=passing.scheme, artifact=_place(passing), reason=""))
    return Delivering(tuple(tried), tuple(found))


def fallback_job(workshop: Workshop, scheme: str, target: str) -> Job:
    """A scheme that stands by, planned for a target; with the reason where it cannot be tried."""
    plan = workshop.plan(scheme, target)
    if not plan.quantized:
        reasons = sorted({choice.reason for choice in plan.layers})
        return Job(scheme, target, status="not applicable", reason=f"nothing to quantize: {'; '.join(reasons)}")
    obstacle = training_obstacle(workshop, scheme)
    return Job(scheme, target, plan) if obstacle is None else Job(scheme, target, status="not applicable", reason=obstacle)


def fallback_table(workshop: Workshop, job: Job) -> CalibrationTable | None:
    """What calibration sees for a fallback: a pass of its own, made only where it is needed."""
    assert job.plan is not None, "a job that can be tried"
    bound = workshop.bound
    if bound.schemes[job.scheme].data == "none" and bound.targets[job.target].dialect.body == "fp32":
        return None
    return workshop.calibrate([(bound.schemes[job.scheme], bound.targets[job.target], job.plan)])


def _fall_back(workshop: Workshop, target: str, own: Sequence[Outcome], base: Built | None, reference: Baseline) -> tuple[list[Outcome], Delivered]:
    why = "; ".join(f"{o.scheme} {_became(o)}" for o in own)
    tried: list[Outcome] = []
    for title in workshop.bound.fallbacks:
        if title == BASELINE or any(outcome.scheme == title for outcome in own):
            continue
        outcome = _tried(workshop, fallback_job(workshop, title, target), reference)
        tried.append(outcome)
        if outcome.verdict == "pass":
            return tried, Delivered(target=target, scheme=title, artifact=_place(outcome), reason=why)
        why += f"; {title} {_became(outcome)}"
    fault = _fault_of_fp32(workshop, base, reference)
    if base is None or fault:
        return tried, Delivered(target=target, scheme=None, artifact=None, reason=f"{why}; FP32 itself fails: {fault}")
    return tried, Delivered(target=target, scheme=BASELINE, artifact=artifact_folder(base), reason=why)


def _tried(workshop: Workshop, job: Job, reference: Baseline) -> Outcome:
    plan = job.plan
    if plan is None:
        return Outcome(job.scheme, job.target, status=job.status, reason=job.reason)
    scheme = workshop.bound.schemes[job.scheme]
    emulated = study_of(scheme) or workshop.bound.targets[job.target].emulates(scheme.base)

    def build() -> Built:
        return workshop.build(job.scheme, job.target, plan, fallback_table(workshop, job))

    return judged(workshop, build, reference, scheme=job.scheme, target=job.target, plan=plan, emulated=emulated)


def _fault_of_fp32(workshop: Workshop, base: Built | None, reference: Baseline) -> str:
    """Why the FP32 artifact cannot be deployed either; empty when it can: only a gate that fails speaks against it, not one with too few samples."""
    if base is None:
        return "the engine refuses it"
    try:
        measured = workshop.evaluate(base, reference)
        verdicts = gate_candidate(workshop, base, reference.predictions, measured.predictions)
    except RunError:
        raise
    except QuantError as error:
        return one_line(error)
    failed = worst([verdict.decision for verdict in verdicts.values()]) == "fail" if verdicts else False
    return "in its engine it does not pass the gate against itself" if failed else ""


def _became(outcome: Outcome) -> str:
    if outcome.status in {"not available", "not applicable", "not tried"}:
        return f"is {outcome.status}"
    return {"fail": "fails", "inconclusive": "is inconclusive"}.get(outcome.verdict or "", "was not judged")


def _size(outcome: Outcome) -> tuple[bool, int, str]:
    assert outcome.built is not None
    return outcome.emulated is not None, outcome.built.artifact.size_bytes, outcome.scheme


def _place(outcome: Outcome) -> str:
    assert outcome.built is not None
    return artifact_folder(outcome.built)
