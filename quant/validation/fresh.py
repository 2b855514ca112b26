"""A fresh process that loads an artifact, answers odd requests, is timed and is put under load; a crash there is a finding here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from evaluators.latency import Latency
from quant.core.documents import Document
from quant.core.files import write_text
from quant.engine.candidates import Built, Workshop
from quant.engine.timing import timed_threads
from quant.errors import QuantError, TargetError
from quant.graph.runtime import Runtime
from quant.stages.measure import requests
from quant.stages.running import Array, Outputs
from quant.validation.odd import Odd, odd_requests

JOB, RESULT, DOING = "job.json", "result.json", "doing.txt"
_LONGEST_S = 600.0
_UNDER_LOAD = 8
"""Different requests under load: enough that threads are inside different ones at a time, few enough to hold all outputs."""
TRIM_BYTES = 128 << 10
"""glibc's own threshold, made fixed: what is free above it at the end of an arena goes back to the system, and so does each larger block."""


@dataclass(frozen=True)
class Serving:
    """How an artifact is put under load: for how many seconds, and by how many threads at once."""

    seconds: float
    threads: int


class Answer(Document):
    """What came of one request.

    Args:
        request: What it is called.
        error: Why it was refused; empty when it was answered.
        not_finite: Outputs with a NaN or an infinity.
        file: File with the outputs.
    """

    request: str
    error: str
    not_finite: tuple[str, ...]
    file: str


class Load(Document):
    """What came of sustained load.

    Args:
        requests: How many were answered.
        seconds: In how long.
        different: For how many an output was not, bit for bit, that of a single thread; the first of them.
        first_different: Which request and output that was first.
        error: What ended a thread; empty when nothing did.
        repeatable: Whether one thread alone gives the same outputs twice.
        rss: (second, resident bytes) over the time.
    """

    requests: int
    seconds: float
    different: int
    first_different: str
    error: str
    repeatable: bool
    rss: tuple[tuple[float, int], ...]


class Served(Document):
    """What a fresh process told of an artifact.

    Args:
        outputs: Names of its outputs, in order.
        load_s: Seconds to load it.
        first_run_s: Seconds of the first inference.
        first_bytes: The most memory that the process held until then.
        peak_bytes: The most memory that it held until its end.
        answers: One for each odd request.
        latency: Times of single requests; None when it was not to be timed.
        under_load: Under load; None when it was not put under any.
    """

    outputs: tuple[str, ...]
    load_s: float
    first_run_s: float
    first_bytes: int
    peak_bytes: int
    answers: tuple[Answer, ...]
    latency: Latency | None
    under_load: Load | None


@dataclass(frozen=True)
class Fresh:
    """What a fresh process made of an artifact, beside what FP32 makes of the same.

    Args:
        served: What it told.
        odd: The odd requests.
        fp32: Request -> outputs of the FP32 model; those that it refuses itself are missing.
        folder: Where the outputs are.
    """

    served: Served
    odd: tuple[Odd, ...]
    fp32: Mapping[str, Outputs]
    folder: Path

    @cached_property
    def usual(self) -> Outputs:
        """The outputs for the first request, which is a usual one."""
        return self.outputs(self.served.answers[0])

    def outputs(self, answer: Answer) -> Outputs:
        """The outputs of an answer."""
        with np.load(self.folder / answer.file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}


def serve(workshop: Workshop, built: Built, serving: Serving, scratch: Path) -> Fresh:
    """Load `built` in a fresh process and ask it everything.

    Raises:
        TargetError: It could not be loaded, gave no answer in time, or the process died; the message says of what.
    """
    recipe = workshop.bound.loaded.recipe
    odd = odd_requests(workshop)
    folder = Path(tempfile.mkdtemp(prefix="fresh.", dir=scratch))
    feeding = workshop.prepared.feeding(workshop.bound, recipe.latency.batch_size)
    usual = requests(workshop.prepared.data.roles["evaluation"], feeding, most=max(recipe.latency.requests, _UNDER_LOAD))
    _write(folder, "odd", [request.feed for request in odd])
    _write(folder, "usual", usual)
    timed = not workshop.bound.targets[built.target].ahead_of_time
    job = {
        "artifact": built.artifact.model_dump(mode="json"),
        "folder": str(built.folder.resolve()),
        "odd": [request.name for request in odd],
        "usual": len(usual),
        "latency": {**recipe.latency.model_dump(mode="json"), "threads": timed_threads(workshop)} if timed else None,
        "load": {**asdict(serving), "requests": _UNDER_LOAD} if timed else None,
    }
    write_text(folder / JOB, json.dumps(job, sort_keys=True))
    _run(folder, _LONGEST_S + serving.seconds)
    return Fresh(Served.load(folder / RESULT), odd, _of_fp32(workshop, odd), folder)


def _write(folder: Path, name: str, feeds: Sequence[Mapping[str, Array]]) -> None:
    for number, feed in enumerate(feeds):
        np.savez(folder / f"{name}-{number}.npz", allow_pickle=False, **feed)


def _run(folder: Path, longest_s: float) -> None:
    command = [sys.executable, "-m", "quant.validation.worker", str(folder)]
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": str(TRIM_BYTES), "MALLOC_MMAP_THRESHOLD_": str(TRIM_BYTES)}
    with (folder / "err.txt").open("wb") as complaint:
        process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaint, env=environment, start_new_session=True
        )
        try:
            code = process.wait(longest_s)
        except subprocess.TimeoutExpired as error:
            raise TargetError(f"a fresh process was still {_doing(folder)} after {longest_s:g} s") from error
        finally:
            if process.poll() is None:  # too slow, or the user interrupted: nothing is left behind
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code < 0:
        raise TargetError(f"a fresh process died of {signal.Signals(-code).name} while {_doing(folder)}")
    if code:
        lines = (folder / "err.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise TargetError(f"a fresh process failed while {_doing(folder)}: {lines[-1] if lines else f'exit code {code}'}")


def _doing(folder: Path) -> str:
    path = folder / DOING
    return path.read_text(encoding="utf-8") if path.exists() else "starting"


def _of_fp32(workshop: Workshop, odd: Sequence[Odd]) -> dict[str, Outputs]:
    runtime = Runtime(workshop.prepared.path)
    found = {}
    for request in odd:
        try:
            found[request.name] = runtime.run(request.feed)
        except QuantError:  # FP32 refuses it: nothing can be asked of the artifact
            continue
    return found
