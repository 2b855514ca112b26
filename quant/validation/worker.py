"""Loads one artifact in a fresh process, asks it everything and writes what came of it; see `fresh`.

Run as `python -m quant.validation.worker FOLDER`; the folder holds the job and its requests.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluators.latency import Latency, measure
from quant.core.documents import Artifact
from quant.errors import QuantError
from quant.targets import TARGETS, Session
from quant.validation.load import Sustained, peak_bytes, resident_bytes

Feed = Mapping[str, npt.NDArray[Any]]


def main(arguments: list[str]) -> int:
    """Do the job in the folder; a `QuantError` ends it with exit code 1 and its message on standard error."""
    folder = Path(arguments[0])
    try:
        _work(folder, json.loads((folder / "job.json").read_text(encoding="utf-8")))
    except QuantError as error:
        sys.stderr.write(" ".join(error.what.split()) + "\n")
        return 1
    return 0


def _work(folder: Path, job: Mapping[str, Any]) -> None:
    def doing(what: str) -> None:
        (folder / "doing.txt").write_text(what, encoding="utf-8")

    odd, usual = (_feeds(folder, name, count) for name, count in (("odd", len(job["odd"])), ("usual", job["usual"])))
    artifact = Artifact.model_validate(job["artifact"])
    target = TARGETS.make(artifact.target, dict(artifact.options))
    where = Path(job["folder"])
    doing("loading it")
    start = time.perf_counter()
    session = target.session(artifact, where, threads=1)
    loaded = time.perf_counter()
    doing(f"answering its first request, {job['odd'][0]}")
    session.run(odd[0])
    ran, first_bytes = time.perf_counter(), peak_bytes() or resident_bytes()
    answers = [
        _answer(session, folder, number, request=request, feed=feed, doing=doing) for number, (request, feed) in enumerate(zip(job["odd"], odd, strict=True))
    ]
    latency = None
    if job["latency"] is not None:
        doing("being timed")
        latency = _times(target.session(artifact, where, threads=job["latency"]["threads"]), usual, job["latency"])
    load = None
    if job["load"] is not None:
        doing(f"under load of {job['load']['threads']} threads")
        load = Sustained(session.run, usual[: job["load"]["requests"]]).result(seconds=job["load"]["seconds"], threads=job["load"]["threads"])
    told = {
        "outputs": list(session.outputs),
        "load_s": loaded - start,
        "first_run_s": ran - loaded,
        "first_bytes": first_bytes,
        "peak_bytes": peak_bytes() or resident_bytes(),
        "answers": answers,
        "latency": latency.model_dump(mode="json") if latency is not None else None,
        "under_load": load,
    }
    (folder / "result.json").write_text(json.dumps(told), encoding="utf-8")


def _feeds(folder: Path, name: str, count: int) -> list[Feed]:
    found: list[Feed] = []
    for number in range(count):
        with np.load(folder / f"{name}-{number}.npz", allow_pickle=False) as arrays:
            found.append({key: arrays[key] for key in arrays.files})
    return found


def _answer(session: Session, folder: Path, number: int, *, request: str, feed: Feed, doing: Callable[[str], None]) -> dict[str, Any]:
    doing(f"answering {request}")
    file = f"out-{number}.npz"
    try:
        outputs = session.run(feed)
    except QuantError as error:
        return {"request": request, "error": " ".join(error.what.split()), "not_finite": [], "file": ""}
    np.savez(folder / file, allow_pickle=False, **outputs)
    broken = [name for name, array in outputs.items() if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all()]
    return {"request": request, "error": "", "not_finite": sorted(broken), "file": file}


def _times(session: Session, usual: list[Feed], told: Mapping[str, Any]) -> Latency:
    def once(number: int) -> None:
        session.run(usual[number % len(usual)])

    for number in range(len(usual)):  # an engine may make itself ready for each shape when it first sees it
        once(number)
    return measure({"it": once}, requests=told["requests"], warmup=told["warmup"], batch_size=told["batch_size"])["it"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
