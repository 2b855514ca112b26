"""The report of a run, put together from what its stages found."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from evaluators.latency import Latency
from evaluators.memory import FirstRun
from quant.core.table import CalibrationTable
from quant.engine.candidates import Baseline, Built, Workshop
from quant.engine.drawing import layer_graph
from quant.engine.machine import environment
from quant.engine.summary import (
    Outcome,
    baseline_row,
    calibration_summary,
    candidate_row,
    data_summary,
    fastest_passing,
    latency_row,
    model_summary,
    overall,
)
from quant.engine.timing import timed_threads
from quant.report.delivered import Delivered, delivered_sentence, delivered_verdict
from quant.report.document import Choice, Report, Timings
from quant.report.mixing import MixingRow
from quant.report.sentence import verdict_sentence


@dataclass(frozen=True)
class Clock:
    """When a run began: by the calendar (UTC), and by a clock that never jumps (seconds)."""

    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    since: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.since


@dataclass(frozen=True)
class Findings:
    """What the stages of a run found.

    Args:
        reference: FP32 on the evaluation samples.
        table: Statistics of activations; None when no scheme needed any.
        outcomes: Every scheme on every target.
        baselines: Target -> its FP32 artifact.
        latency: Name of an artifact -> its times.
        first: Name of an artifact -> its first inference.
        choices: What was chosen on each target, where schemes are `auto`.
        mixing: How the plan that mixes formats was found on each target.
        delivered: What is delivered on each target, where the recipe has `on_fail`.
    """

    reference: Baseline
    table: CalibrationTable | None
    outcomes: Sequence[Outcome]
    baselines: Mapping[str, Built]
    latency: Mapping[str, Latency]
    first: Mapping[str, FirstRun]
    choices: tuple[Choice, ...] = ()
    mixing: tuple[MixingRow, ...] = ()
    delivered: tuple[Delivered, ...] = ()


def make_report(workshop: Workshop, found: Findings, clock: Clock) -> Report:
    """The report, with the digest of everything that does not differ from run to run."""
    bound, prepared = workshop.bound, workshop.prepared
    recipe = bound.loaded.recipe
    sizes = (built.artifact.size_bytes for built in found.baselines.values())
    size = next(sizes, None) or sum(path.stat().st_size for path in prepared.path.parent.glob(f"{prepared.path.name}*"))
    rows = tuple(candidate_row(o, workshop, found.baselines.get(o.target), found.latency) for o in found.outcomes)
    baseline = baseline_row(bound, prepared, found.reference.predictions, size)
    verdict = delivered_verdict(found.delivered) or overall(found.outcomes)
    return Report(
        name=recipe.name,
        description=recipe.description,
        verdict=verdict,
        sentence=delivered_sentence(found.delivered) or verdict_sentence(verdict, rows, baseline=baseline),
        baseline=baseline,
        candidates=rows,
        model=model_summary(bound, prepared),
        data=data_summary(bound, prepared, workshop.slices),
        calibration=calibration_summary(bound, found.table, found.outcomes),
        environment=environment(),
        recipe=bound.loaded.resolved_yaml(),
        timings=_timings(workshop, found, clock),
        delivered=found.delivered,
        graph=layer_graph(prepared.layers),
    ).with_digest()


def _timings(workshop: Workshop, found: Findings, clock: Clock) -> Timings:
    built = [*found.baselines.values(), *(o.built for o in found.outcomes if o.built is not None)]
    return Timings(
        started=clock.started.isoformat(timespec="seconds"),
        seconds=clock.seconds,
        stages=dict(workshop.cache.seconds),
        threads=timed_threads(workshop),
        batch_size=workshop.bound.loaded.recipe.latency.batch_size,
        latency=tuple(latency_row(b, found.latency[b.name], found.first.get(b.name)) for b in built if b.name in found.latency),
        fastest_passing=fastest_passing(found.outcomes, found.latency),
        choices=found.choices,
        mixing=found.mixing,
    )
