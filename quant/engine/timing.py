"""Times of all artifacts of a run, kept like any other stage's result, under the machine that they were taken on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluators.latency import Latency
from evaluators.memory import FirstRun
from quant.core.parallel import worker_count
from quant.engine.bind import BASELINE
from quant.engine.candidates import Built, Workshop
from quant.engine.machine import environment
from quant.stages.measure import measure_first_runs, measure_latency, requests

_TIMES = "times.json"


def timed_threads(workshop: Workshop) -> int:
    """Threads of one timed request: the recipe's, or all cores."""
    return workshop.bound.loaded.recipe.latency.threads or worker_count()


def time_artifacts(workshop: Workshop, built: Sequence[Built], *, title: str = "") -> tuple[dict[str, Latency], dict[str, FirstRun]]:
    """Latency and first inference of every artifact of one target, `built` beginning with its FP32 baseline.

    Args:
        workshop: What the candidates share.
        built: The artifacts; they take turns.
        title: What the stage is called; the target when not given.
    """
    spec = workshop.bound.loaded.recipe.latency
    threads = timed_threads(workshop)
    target = built[0].target

    def produce(folder: Path) -> None:
        latency, first = _measure(workshop, built, threads)
        found = {"latency": {k: v.model_dump(mode="json") for k, v in latency.items()}, "first": {k: v.model_dump(mode="json") for k, v in first.items()}}
        (folder / _TIMES).write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")

    key = {
        "artifacts": {b.name: b.artifact.digest for b in built},
        "spec": spec.model_dump(mode="json"),
        "threads": threads,
        "machine": environment(),
        "data": workshop.prepared.data.roles["evaluation"].digest,
    }
    folder = workshop.cache.stage(f"measure:{title or target}", key, produce)
    found = json.loads((folder / _TIMES).read_text(encoding="utf-8"))
    return {k: Latency.model_validate(v) for k, v in found["latency"].items()}, {k: FirstRun.model_validate(v) for k, v in found["first"].items()}


def _measure(workshop: Workshop, built: Sequence[Built], threads: int) -> tuple[Mapping[str, Latency], Mapping[str, FirstRun]]:
    spec = workshop.bound.loaded.recipe.latency
    engine = workshop.bound.targets[built[0].target]
    feeding = workshop.prepared.feeding(workshop.bound, spec.batch_size)
    asked = requests(workshop.prepared.data.roles["evaluation"], feeding, most=spec.requests)
    sessions = {b.name: engine.session(b.artifact, b.folder, threads=threads) for b in built}
    baseline = next(b.name for b in built if b.scheme == BASELINE)
    latency = measure_latency(sessions, asked, rounds=spec.requests, warmup=spec.warmup, baseline=baseline, batch_size=spec.batch_size)
    del sessions
    return latency, measure_first_runs({b.name: (b.artifact, b.folder) for b in built}, asked[0], threads=threads)
