"""From what a run measured to its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evaluators.agreement import Agreement
from evaluators.latency import Latency
from evaluators.memory import FirstRun
from quant.core.documents import Audit, Decision, Verdict
from quant.core.formats import Range
from quant.core.statistics import TensorStatistics
from quant.core.table import CalibrationTable
from quant.data.slices import Members
from quant.engine.bind import Bound
from quant.engine.candidates import Built, Measured, Workshop, metric_values
from quant.engine.prepare import Prepared
from quant.engine.too_few import too_few
from quant.report.document import Baseline, Calibration, Candidate, DataSummary, FidelityRow, LatencyRow, ModelSummary, RangeRow, TrainingRow, TransformRow
from quant.report.gate_row import GateRow
from quant.stages.evaluate import Predictions

Status = Literal["measured", "failed", "not available", "not applicable", "not tried"]


@dataclass(frozen=True)
class Outcome:
    """Everything about one scheme on one target.

    Args:
        scheme: Title of the scheme.
        target: Title of the target.
        built: Its artifact; None when there is none.
        measured: Predictions and fidelity; None when it did not run.
        audit: What the engine runs; None when it did not run.
        verdicts: Number of a gate -> verdict.
        emulated: Why the engine has no speed of its own for the format here.
        status: Whether it was measured.
        reason: Why not, or why it fails whatever its gates say.
        fails: Whether it fails whatever its gates say.
        agreement: The engine against the plain meaning of its graph; None when they were not compared.
        slices: (metric, what was found) in each part of slices.
    """

    scheme: str
    target: str
    built: Built | None = None
    measured: Measured | None = None
    audit: Audit | None = None
    verdicts: Mapping[int, Verdict] | None = None
    emulated: str | None = None
    status: Status = "measured"
    reason: str = ""
    fails: bool = False
    agreement: Agreement | None = None
    slices: tuple[tuple[str, Verdict], ...] = ()

    @property
    def verdict(self) -> Decision | None:
        """`fail` if it fails anyhow, else the worst verdict of all gates; None without gates."""
        if self.fails:
            return "fail"
        return worst([v.decision for v in self.verdicts.values()]) if self.verdicts else None


def worst(decisions: Sequence[Decision]) -> Decision:
    """`fail` before `inconclusive` before `pass`."""
    return "fail" if "fail" in decisions else "inconclusive" if "inconclusive" in decisions else "pass"


def overall(outcomes: Sequence[Outcome]) -> Decision:
    """The verdict of a run: pass when any candidate passes, else inconclusive when any may or was not judged, else fail."""
    found = [outcome.verdict or "inconclusive" for outcome in outcomes if outcome.status in {"measured", "failed"}]
    return "pass" if "pass" in found else "inconclusive" if "inconclusive" in found else "fail"


def candidate_row(outcome: Outcome, workshop: Workshop, base: Built | None, latency: Mapping[str, Latency]) -> Candidate:
    """The report's row of one candidate."""
    bound, built = workshop.bound, outcome.built
    row = Candidate(
        scheme=outcome.scheme, target=outcome.target, status=outcome.status, reason=outcome.reason, emulated=outcome.emulated, verdict=outcome.verdict
    )
    if built is not None:
        row = row.model_copy(
            update={
                "size_bytes": built.artifact.size_bytes,
                "size_ratio": built.artifact.size_bytes / base.artifact.size_bytes if base else None,
                "plan": built.plan.layers if built.plan else (),
                "audit": outcome.audit.rows if outcome.audit else (),
                "transforms": tuple(TransformRow(**step.model_dump()) for step in built.story.steps),
                "training": TrainingRow.model_validate(built.trained.model_dump(exclude={"ranges"})) if built.trained else None,
                "unaudited": outcome.audit.unaudited if outcome.audit else "",
                "artifact": artifact_folder(built),
                "files": dict(built.artifact.files),
            }
        )
    if built is None or outcome.measured is None:
        return row
    first = outcome.verdicts.get(0) if outcome.verdicts else None
    timed = latency.get(built.name)
    return row.model_copy(
        update={
            "metric": bound.gates[0][0] if bound.gates else None,
            "value": first.value if first else None,
            "drop": first.drop if first else None,
            "drop_upper": first.drop_upper if first else None,
            "gates": tuple(_gate_row(bound, number, verdict) for number, verdict in (outcome.verdicts or {}).items()),
            "slices": tuple(_row_of(bound, name, verdict) for name, verdict in outcome.slices),
            "repeats": outcome.measured.predictions.repeats,
            "metrics": metric_values(bound, outcome.measured.predictions),
            "latency_ratio": timed.ratio if timed and not outcome.emulated else None,
            "fidelity": _fidelity_row(outcome.measured, workshop),
            "agreement": outcome.agreement,
        }
    )


def artifact_folder(built: Built) -> str:
    """Where the artifact lies in the run's folder."""
    return f"artifacts/{built.target}/{built.scheme}"


def _gate_row(bound: Bound, number: int, verdict: Verdict) -> GateRow:
    return _row_of(bound, bound.gates[number][0], verdict)


def _row_of(bound: Bound, name: str, verdict: Verdict) -> GateRow:
    metric = bound.metrics[name]
    return GateRow(metric=name, direction=metric.direction, unit=metric.unit, verdict=verdict)


def _fidelity_row(measured: Measured, workshop: Workshop) -> FidelityRow | None:
    found, output = measured.fidelity, workshop.fidelity_output
    if found is None or output is None:
        return None
    classes = workshop.has_classes(output)
    return FidelityRow(
        output=output,
        samples=found.samples,
        exact=found.exact,
        sqnr_db=found.sqnr_db,
        cosine_mean=found.cosine_mean,
        cosine_min=found.cosine_min,
        max_abs_error=found.max_abs_error,
        kl=found.kl if classes else None,
        agreement=found.agreement if classes else None,
    )


def baseline_row(bound: Bound, prepared: Prepared, predictions: Predictions, size_bytes: int) -> Baseline:
    """The report's part on FP32."""
    values = metric_values(bound, predictions)
    name = bound.gates[0][0] if bound.gates else None
    return Baseline(
        metric=name,
        value=values[name] if name else None,
        metrics=values,
        units={title: metric.unit for title, metric in bound.metrics.items()},
        samples=len(prepared.data.roles["evaluation"]),
        size_bytes=size_bytes,
        model_sha256=prepared.digest,
    )


def model_summary(bound: Bound, prepared: Prepared) -> ModelSummary:
    """The report's part on the model."""
    report, head = prepared.report, prepared.head
    steps = [f"{step.name} ({step.count})" for step in report.steps]
    notes = list(report.notes)
    if report.parity_max_abs is not None:
        notes.append(f"the exported graph equals torch within {report.parity_max_abs:.2g}")
    if head is not None:
        steps.append(f"linear probe on {head.output!r}: {head.classes} classes from {head.samples} samples")
        notes.extend(head.notes)
    return ModelSummary(
        kind=report.kind,
        source=bound.loaded.recipe.model.source,
        parameters=prepared.parameters,
        layers=len(prepared.layers),
        opset=report.opset_after,
        inputs=tuple(map(str, prepared.signature.inputs)),
        outputs=tuple(map(str, prepared.signature.outputs)),
        steps=tuple(steps),
        notes=tuple(notes),
    )


def data_summary(bound: Bound, prepared: Prepared, members: Mapping[str, Members]) -> DataSummary:
    """The report's part on the data."""
    spec = bound.loaded.recipe.data
    own = [f"{role}: {split.data.source}" for role in prepared.data.roles if (split := getattr(spec.splits, role)) is not None and split.data is not None]
    roles = {role: len(samples) for role, samples in prepared.data.roles.items()}
    few = too_few(bound, members, len(prepared.data.roles["evaluation"]))
    return DataSummary(source="; ".join([spec.source, *own]), roles=roles, notes=(*prepared.data.notes, *few), samples_sha256=prepared.data.digest)


def calibration_summary(bound: Bound, table: CalibrationTable | None, outcomes: Sequence[Outcome]) -> Calibration | None:
    """The report's part on ranges: those that were written into any artifact."""
    if table is None:
        return None
    chosen: dict[str, RangeRow] = {}
    for built in (outcome.built for outcome in outcomes):
        # A transform changes what is seen in a tensor, so each artifact's ranges are held to what was seen when it was made.
        seen = built.table.statistics if built is not None and built.table is not None else {}
        for name, found in built.ranges.items() if built is not None else ():
            if name not in chosen and name in seen:
                chosen[name] = _range_row(name, seen[name], found)
    rows = tuple(chosen[name] for name in sorted(chosen))
    return Calibration(calibrator=bound.loaded.recipe.calibration.calibrator.kind, samples=table.samples, table_sha256=table.digest, ranges=rows)


def _range_row(name: str, seen: TensorStatistics, chosen: Range) -> RangeRow:
    bins = seen.bins
    outside = int(bins.counts[(bins.centers < chosen.low) | (bins.centers > chosen.high)].sum())
    return RangeRow(
        tensor=name,
        minimum=seen.minimum,
        maximum=seen.maximum,
        rms=seen.rms,
        low=float(chosen.low),
        high=float(chosen.high),
        clipped=outside / max(seen.count, 1),
    )


def latency_row(built: Built, found: Latency, first: FirstRun | None) -> LatencyRow:
    """The report's row of times of one artifact."""
    return LatencyRow(
        scheme=built.scheme,
        target=built.target,
        p50_ms=found.p50_ms,
        p90_ms=found.p90_ms,
        p99_ms=found.p99_ms,
        throughput_per_s=found.throughput_per_s,
        ratio=found.ratio,
        ratio_low=found.ratio_lower,
        ratio_high=found.ratio_upper,
        first_inference_s=first.load_s + first.first_run_s if first else None,
        peak_memory_bytes=first.peak_rss_bytes if first else None,
        quantiles_ms=found.quantiles_ms,
        requests=found.requests,
    )


def fastest_passing(outcomes: Sequence[Outcome], latency: Mapping[str, Latency]) -> str | None:
    """The passing candidate with the smallest time; None when none passes or none was timed."""
    timed = [(latency[o.built.name].ratio, o.built.name) for o in outcomes if o.built and o.verdict == "pass" and not o.emulated and o.built.name in latency]
    return min(timed)[1] if timed else None
