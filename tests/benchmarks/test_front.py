"""Accuracy against measured time on two engines: schemes alone, the mixed plan, and what other tools make of the same model and calibration data.

    pytest tests/benchmarks/test_front.py -m benchmark -s

Other tools run in environments of their own, given by the interpreters in `QUANT_PEERS` (`nncf=/path/bin/python,modelopt=/path/bin/python`); those that
are not there are left out and said. All are timed in turns, in one thread, on the same requests. A point of a peer is matched when one of ours is at least as
fast (unless both 95 % intervals say that it is slower) and at least as accurate, within one standard error of the paired difference.

All points are drawn, too: a report with the peers among the candidates is written into `QUANT_FRONT`, if that names a folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.slow, pytest.mark.network]

ENGINES = ("onnxruntime", "openvino")
ROUNDS, WARMUP, CALIBRATION = 60, 3, 128
PEERS = Path(__file__).parent / "peers"
PICTURES = Path(__file__).resolve().parents[3] / "shared" / "data" / "imagenet-sample"
FP32 = "fp32"


@dataclass(frozen=True)
class Case:
    """A recipe, what is changed in it, and what its network is."""

    recipe: str
    kind: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One artifact: how right it is, sample by sample, and how long it takes beside FP32."""

    ours: bool
    right: np.ndarray
    time: Any
    verdict: Any

    @property
    def accuracy(self):
        """Share of samples that it has right."""
        return float(self.right.mean())

    @property
    def seconds(self):
        """Time over FP32's, with its interval, for people."""
        return f"{self.time.ratio:.3f} ({self.time.ratio_lower:.3f} to {self.time.ratio_upper:.3f})"


TEXTS = Case("text-sentiment", "transformer", ("schemes=[int8, int8-dynamic]", "plan={schemes: [int8]}", "gate.max_drop=0.005", "latency.requests=5"))
IMAGES = Case(
    "image-imagenet",
    "convolutions",
    (
        *(f"data.source={PICTURES}", r"data.label.file_name=(\d+)\.jpg", "data.splits.calibration=128", "data.splits.search=128"),
        *("schemes=[int8]", "plan={}", "gate.max_drop=0.01", "latency.requests=5"),
    ),
)


def interpreters():
    """Name of a peer's script -> what runs it."""
    told = dict(part.split("=", 1) for part in os.environ.get("QUANT_PEERS", "").split(",") if "=" in part)
    return {"onnxruntime": sys.executable, **told}


def peers(model, calibration, kind, folder):
    """(engine, name) -> file that a peer made."""
    found = {}
    for name, python in interpreters().items():
        place = folder / name
        place.mkdir()
        done = subprocess.run([python, PEERS / f"with_{name}.py", model, calibration, place, kind], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"  {name} makes nothing of it: {done.stderr.strip().splitlines()[-1][:200]}")
            continue
        told = json.loads((place / "made.json").read_text())
        print(f"  {name}: {told['versions']}", *(f"{k}: {v}" for k, v in told.get("said", {}).items()))
        found |= {(engine, title): place / file for title, (file, engines) in told["made"].items() for engine in engines}
    return found


def session_of(engine, path):
    """A peer's file in the same engine, told the same as ours."""
    from quant.core.documents import Artifact
    from quant.targets import TARGETS

    artifact = Artifact(target=engine, scheme="peer", main=path.name, files={}, size_bytes=0)
    return TARGETS.make(engine).session(artifact, path.parent, threads=1)


def right_of(run, shop):
    """Whether each evaluation sample is told rightly."""
    from quant.stages.evaluate import evaluate

    name = next(iter(shop.bound.metrics))
    feeding = shop.prepared.feeding(shop.bound, shop.bound.loaded.recipe.evaluation.batch_size)
    found = evaluate(run, shop.prepared.data.roles["evaluation"], feeding, {name: shop.bound.metrics[name]}, title="evaluating")
    return found.predictions.records[name][:, 0]


def prepared(case, engines):
    """Model and data of the recipe."""
    from quant.core.cache_folder import cache_folder
    from quant.engine.bind import bind
    from quant.engine.cache import StageCache
    from quant.engine.candidates import Workshop
    from quant.engine.prepare import prepare
    from quant.recipe.load import load_recipe

    bound = bind(load_recipe(case.recipe, [*case.overrides, f"targets=[{','.join(engines)}]"]), trust_code=False)
    cache = StageCache(cache_folder() / "stages")
    return Workshop(bound, prepare(bound, cache, trust_code=False), cache)


def points(case, folder):
    """Engine -> name -> point."""
    import quant
    from evaluators.gate import gate
    from quant.stages.measure import measure_latency, requests
    from quant.targets import TARGETS

    engines = [kind for kind in ENGINES if TARGETS.make(kind).available().available]
    print(f"\n{case.recipe}")
    ran = quant.run(case.recipe, output=folder / "out", overrides=[*case.overrides, f"targets=[{','.join(engines)}]"])
    shop = prepared(case, engines)
    one = shop.prepared.feeding(shop.bound, 1)
    calibration = folder / "calibration.npz"
    samples = requests(shop.prepared.data.roles["calibration"], one, most=CALIBRATION)
    np.savez(calibration, **{f"{number}/{name}": array for number, feed in enumerate(samples) for name, array in feed.items()})
    whole = folder / "model.onnx"
    onnx.save(onnx.load(shop.prepared.path), whole)  # weights in a file of their own are not taken by all
    others = peers(whole, calibration, case.kind, folder)
    asked = requests(shop.prepared.data.roles["evaluation"], one, most=ROUNDS)
    found = {}
    for engine in engines:
        files = {c.scheme: ran.folder / c.artifact for c in ran.report.candidates if c.target == engine and c.artifact}
        files |= {FP32: ran.folder / "artifacts" / engine / FP32}
        sessions = {name: session_of(engine, place / main_of(place)) for name, place in files.items()}
        sessions |= {title: session_of(engine, path) for (where, title), path in others.items() if where == engine}
        times = measure_latency(sessions, asked, rounds=ROUNDS, warmup=WARMUP, baseline=FP32, batch_size=1)
        right = {name: right_of(session.run, shop) for name, session in sessions.items()}
        metric, limit = next(iter(shop.bound.metrics.values())), ran.report.candidates[0].gates[0].verdict.limit

        def judged(name, right=right, metric=metric, limit=limit):
            columns = {one: values[:, None] for one, values in right.items()}
            return gate(metric, columns[FP32], candidate=columns[name], groups=np.arange(len(right[name])), max_drop=limit)

        found[engine] = {name: Point(name in files, right[name], times[name], judged(name)) for name in sessions}
        for row in ran.report.timings.mixing:
            if row.target == engine:
                print(f"  {engine}: {row.ended}")
    draw(ran.report, found)
    return found


def draw(report, found):
    """Write the report with all points as candidates, all timed in the same turns."""
    from quant.report.document import Candidate, LatencyRow
    from quant.report.gate_row import GateRow
    from quant.report.write import write_report

    if "QUANT_FRONT" not in os.environ:
        return
    rows, times = [], []
    for engine, points_of in found.items():
        for name, point in points_of.items():
            t, title = point.time, name if point.ours else f"{name} (peer)"
            quantiles = {"p50_ms": t.p50_ms, "p90_ms": t.p90_ms, "p99_ms": t.p99_ms, "throughput_per_s": t.throughput_per_s}
            times.append(LatencyRow(scheme=title, target=engine, ratio=t.ratio, ratio_low=t.ratio_lower, ratio_high=t.ratio_upper, **quantiles))
            gates = (GateRow(metric="accuracy", direction="higher", unit="share", verdict=point.verdict),)
            told = {"verdict": point.verdict.decision, "gates": gates, "latency_ratio": t.ratio, "drop": point.verdict.drop, "value": point.accuracy}
            own = next((c for c in report.candidates if point.ours and (c.scheme, c.target) == (name, engine)), None)
            if name != FP32:
                told = {**told, "drop_upper": point.verdict.drop_upper, "metric": "accuracy"}
                rows.append((own or Candidate(scheme=title, target=engine, status="measured")).model_copy(update=told))
    timings = report.timings.model_copy(update={"latency": tuple(times)})
    folder = Path(os.environ["QUANT_FRONT"]) / report.name
    folder.mkdir(parents=True, exist_ok=True)
    print(*write_report(report.model_copy(update={"candidates": tuple(rows), "timings": timings}), folder))


def main_of(place):
    """The file of an artifact of ours that is opened first."""
    return json.loads((place / "artifact.json").read_text())["main"]


def matches(ours, theirs):
    """Whether one of our points is as fast and as accurate as a peer's, within what is noise."""
    difference = theirs.right - ours.right
    return ours.time.ratio_lower <= theirs.time.ratio_upper and difference.mean() <= difference.std() / np.sqrt(len(difference))


@pytest.mark.parametrize("case", [TEXTS, pytest.param(IMAGES, marks=pytest.mark.skipif(not PICTURES.is_dir(), reason=f"no labelled pictures in {PICTURES}"))])
def test_no_peer_has_a_point_that_ours_do_not_match(case, tmp_path):
    beaten = []
    for engine, found in points(case, tmp_path).items():
        print(f"  {engine:12} {'':14} {'accuracy':>9} {'time, FP32 = 1':>24}")
        for name, point in sorted(found.items(), key=lambda pair: pair[1].time.ratio):
            print(f"  {'' if point.ours else '(peer)':12} {name:14} {100 * point.accuracy:8.2f} % {point.seconds:>24}")
        own = [point for point in found.values() if point.ours]
        beaten += [f"{name} on {engine}" for name, point in found.items() if not point.ours and not any(matches(mine, point) for mine in own)]
    assert not beaten
