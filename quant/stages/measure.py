"""measure: artifacts -> latency, all of them interleaved in one process, and the first inference of each in a fresh one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from pathlib import Path

import numpy as np

from evaluators.latency import Latency, measure
from evaluators.memory import FirstRun, measure_first_run
from quant.core.documents import Artifact
from quant.core.progress import tracked
from quant.data.batches import batches, safe_batch_size
from quant.data.first import FirstSamples
from quant.data.samples import Samples
from quant.stages.running import Array, Feeding, inputs_from_data, steps
from quant.targets import Session

Request = Mapping[str, Array]

_SETTLE_MS = 10.0
"""After that the times of engines timed in turns no longer moved: sentence encoder and network for pictures, on one thread and on two."""


def requests(samples: Samples, feeding: Feeding, *, most: int) -> list[Request]:
    """Up to `most` batches of the first samples, as they would be sent to the engine.

    A stateful model is asked for single steps, each with the state before it set to zeros.
    """
    if feeding.state:
        return _step_requests(samples, feeding, most)
    size = safe_batch_size(feeding.signature, feeding.batch_size, batch_axes=feeding.batch_axes)
    first = FirstSamples(samples, most * size)
    found = batches(first, inputs_from_data(feeding).inputs, batch_size=size, batch_axes=feeding.batch_axes)
    return [batch.feed for batch in islice(found, most)]


def _step_requests(samples: Samples, feeding: Feeding, most: int) -> list[Request]:
    found: list[Request] = []

    def remember(feed: Request) -> dict[str, Array]:
        found.append(feed)
        return {source: feed[name] for name, source in feeding.state.items()}

    for sample in samples:
        for _step in islice(steps(remember, sample, feeding), most - len(found)):
            pass
        if len(found) >= most:
            break
    return found


def measure_latency(
    sessions: Mapping[str, Session], asked: Sequence[Request], *, rounds: int, warmup: int, baseline: str, batch_size: int
) -> dict[str, Latency]:
    """Latency of every session over the same requests, one after the other in turns, each settled before it is timed.

    Args:
        sessions: Name -> a loaded artifact.
        asked: The requests; they come round again when there are fewer than `rounds`.
        rounds: Timed runs of each session.
        warmup: Runs before them, after one for every shape among the requests.
        baseline: The name that ratios are taken to.
        batch_size: Samples in a request.
    """

    def runner(session: Session) -> Callable[[int], None]:
        def once(number: int) -> None:
            session.run(asked[number % len(asked)])

        return once

    # An engine may make itself ready for each shape when it first sees it: that belongs to a first inference, not to a latency.
    for session, request in product(sessions.values(), _of_each_shape(asked)):
        session.run(request)
    runs = {name: runner(session) for name, session in sessions.items()}
    return measure(runs, requests=rounds, warmup=warmup, baseline=baseline, batch_size=batch_size, settle_ms=_SETTLE_MS)


def _of_each_shape(asked: Sequence[Request]) -> list[Request]:
    """The first request of each combination of shapes."""
    first: dict[tuple[tuple[int, ...], ...], Request] = {}
    for request in asked:
        first.setdefault(tuple(request[name].shape for name in sorted(request)), request)
    return list(first.values())


def measure_first_runs(artifacts: Mapping[str, tuple[Artifact, Path]], request: Request, *, threads: int) -> dict[str, FirstRun]:
    """Load and first run of every artifact, each in a process of its own."""
    found: dict[str, FirstRun] = {}
    with tempfile.TemporaryDirectory() as scratch:
        feed = Path(scratch) / "feed.npz"
        np.savez(feed, allow_pickle=False, **request)
        for name, (_artifact, folder) in tracked(artifacts.items(), "first inference", len(artifacts)):
            command = [sys.executable, "-m", "quant.stages.first_run", str(folder), str(feed), str(threads)]
            found[name] = measure_first_run(command)
    return found
