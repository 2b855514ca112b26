"""The sketch against one-at-a-time measurement: what it costs, and whether it ranks layers alike."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.slow, pytest.mark.network]

PASSES = 4
TEXTS, BATCH, PLACES, SEARCH = 128, 16, 128, 400
PICTURES = Path(__file__).resolve().parents[3] / "shared" / "data" / "imagenet-sample"
"""Labelled pictures beside the repository, when there are any; the 20 that come with the recipe are too few to rank layers by."""


@dataclass(frozen=True)
class Case:
    """A model with what a profile of it needs."""

    path: Any
    work: Any
    table: Any


def prepared(recipe, overrides):
    from quant.core.cache_folder import cache_folder
    from quant.engine.bind import bind
    from quant.engine.cache import StageCache
    from quant.engine.prepare import prepare
    from quant.recipe.load import load_recipe

    bound = bind(load_recipe(recipe, overrides), trust_code=False)
    return bound, prepare(bound, StageCache(cache_folder() / "stages"), trust_code=False)


def case(path, feeding, calibration, search, schemes, *, classes=()):
    from calibrators import CALIBRATORS
    from quant.graph.layers import find_layers
    from quant.graph.model import read_model
    from quant.sensitivity.measuring.outputs import choose_measures
    from quant.stages.calibrate import calibrate
    from quant.stages.profile import Profiling
    from quant.targets import TARGETS

    dialect = TARGETS.make("onnxruntime", {"accuracy_level": 1}).dialect
    model = read_model(path)
    needs = [scheme.needs(model, scheme.plan(model, find_layers(model), dialect), dialect) for scheme in schemes.values()]
    means = sorted({name for n in needs for name in n.means})
    table = calibrate(path, calibration, sorted({name for n in needs for name in n.ranges}), feeding, magnitudes=False, digest="", means=means)
    measures = choose_measures(model, feeding.signature, classes=classes)
    return Case(path, Profiling(schemes, dialect, CALIBRATORS.make("minmax"), feeding, search, measures), table)


class Long(list):
    """Texts joined to `PLACES` tokens."""

    role, digest = "search", "long texts"


def joined(samples):
    """`TEXTS` texts of one length, each of several."""
    from quant.data.samples import Sample

    whole = {}
    for sample in samples:
        for name, array in sample.feeds[0].items():
            whole.setdefault(name, []).append(array)
    ids = {name: np.concatenate(parts) for name, parts in whole.items()}
    return Long(Sample(i, ({name: array[i * PLACES : (i + 1) * PLACES] for name, array in ids.items()},)) for i in range(TEXTS))


def sketched(found, monkeypatch):
    """(profile, seconds of drawing, seconds of everything)."""
    from quant.sensitivity import ESTIMATORS
    from quant.sensitivity.drawing import draw
    from quant.stages.profile import profile

    spent = {"draw": 0.0, "make_twin": 0.0}
    for name in spent:
        inner = getattr(draw, name)

        def timed(*args, inner=inner, name=name, **more):
            start = time.thread_time()
            result = inner(*args, **more)
            spent[name] += time.thread_time() - start
            return result

        monkeypatch.setattr(draw, name, timed)
    start = time.thread_time()
    made = profile(found.path, found.work, table=found.table, estimator=ESTIMATORS.make("sketch"))
    whole = time.thread_time() - start
    monkeypatch.undo()
    return made, spent["draw"] - spent["make_twin"], whole


def exactly(found):
    """(profile, seconds)."""
    from quant.sensitivity import ESTIMATORS
    from quant.stages.profile import profile

    start = time.thread_time()
    made = profile(found.path, found.work, table=found.table, estimator=ESTIMATORS.make("exact", {"parts": False, "joint": True}))
    return made, time.thread_time() - start


def passes(found):
    """Seconds of one FP32 pass over the samples: of the twin, of ONNX Runtime, and with one layer quantized anew, written and run whole."""
    import torch

    from quant.data.batches import batches
    from quant.graph.model import read_model
    from quant.graph.runtime import Runtime
    from quant.stages.profile import _Writing
    from quant.twin.make import make_twin
    from quant.twin.training.fit import exact

    feeding = found.work.feeding
    feeds = [b.feed for b in batches(found.work.samples, feeding.signature.inputs, batch_size=feeding.batch_size, batch_axes=feeding.batch_axes)]
    twin, runtime = make_twin(read_model(found.path), check=None), Runtime(found.path)

    def least(run):
        taken = []
        for _ in range(4):
            start = time.thread_time()
            for feed in feeds:
                run(feed)
            taken.append(time.thread_time() - start)
        return min(taken[1:])

    with exact(), torch.no_grad():
        ours = least(twin.run)
    subject = _Writing(found.path, found.work, found.table, ()).subject()
    number_format, layers = next(iter(subject.candidates.items()))
    start = time.thread_time()
    again = Runtime(subject.write(number_format, [layers[len(layers) // 2]]), folder=found.path.parent)
    for feed in feeds:
        again.run(feed)
    return ours, least(runtime.run), time.thread_time() - start


def compared(title, found, monkeypatch, least):
    """Print what both cost, and hold the sketch to `least` rank correlation."""
    from scipy.stats import spearmanr

    monkeypatch.setenv("QUANT_THREADS", "1")
    twin, engine, again = passes(found)
    sketch, drawing, whole = sketched(found, monkeypatch)
    monkeypatch.setenv("QUANT_THREADS", "1")
    exact, seconds = exactly(found)
    keys = [(e.layer, e.format) for e in exact.effects]
    wanted, made = (np.array([p.effect(*key).value for key in keys]) for p in (exact, sketch))
    rank = spearmanr(wanted, made)[0]
    by_format = {f: spearmanr(*(v[[key[1] == f for key in keys]] for v in (wanted, made)))[0] for f in exact.formats}
    sums = {f: sum(exact.effect(layer, g).value for layer, g in keys if g == f) for f in exact.formats}
    joint = {e.format: e.value for e in exact.joint}
    print(f"\n{title}: {len(keys)} effects on {exact.samples} feeds, the sketch on {sketch.samples} ({exact.measure})")
    print(f"  a pass of the twin takes {twin:.2f} s, of ONNX Runtime {engine:.2f} s")
    print(
        f"  sketch: {drawing / twin:.1f} passes of the twin, {drawing / engine:.1f} of ONNX Runtime ({drawing:.2f} s; {whole:.2f} s with all that goes before)"
    )
    print(f"  exact: {seconds / twin:.0f} passes of the twin, {seconds / engine:.0f} of ONNX Runtime ({seconds:.1f} s)")
    print(f"  one quantization and one run for each layer: {len(keys) * again / engine:.0f} passes of ONNX Runtime ({len(keys) * again:.1f} s)")
    print(f"  Spearman {rank:.3f} ({', '.join(f'{f} {r:.3f}' for f, r in by_format.items())}), median ratio {np.median(made / np.maximum(wanted, 1e-300)):.2f}")
    print(f"  sum of exact effects against all at once: {', '.join(f'{f} {sums[f]:.4f} / {joint[f]:.4f}' for f in sums)}")
    assert rank >= least
    return drawing / twin


@pytest.fixture(scope="module")
def encoder():
    bound, made = prepared("text-sentiment", ["model.head=null", "evaluation.metrics=[]", "plan=null", "data.splits.search=900"])
    return made, made.feeding(bound, BATCH)


@pytest.mark.parametrize("texts", ["as they are", "joined to 128 tokens"])
def test_b1_in_few_passes_and_alike_in_rank(encoder, texts, monkeypatch):
    from quant.data.first import FirstSamples
    from quant.schemes import SCHEMES

    made, feeding = encoder
    roles = made.data.roles
    schemes = {"int8": SCHEMES.make("int8"), "int4": SCHEMES.make("int4", {"method": "rtn", "search": False, "embeddings": False})}
    search = joined(roles["search"]) if texts != "as they are" else FirstSamples(roles["search"], TEXTS)
    found = case(made.path, feeding, FirstSamples(roles["calibration"], 64), search, schemes)
    taken = compared(f"B1, texts {texts}", found, monkeypatch, 0.97)
    assert taken <= PASSES


def test_a1_alike_in_rank(monkeypatch):
    from quant.data.first import FirstSamples
    from quant.schemes import SCHEMES

    own = [f"data.source={PICTURES}", r"data.label.file_name=(\d+)\.jpg", "data.splits.calibration=32", f"data.splits.search={SEARCH}"]
    bound, made = prepared("image-imagenet", own if PICTURES.is_dir() else [])
    roles = made.data.roles
    search = FirstSamples(roles.get("search") or roles["calibration"], SEARCH)
    feeding = made.feeding(bound, 4)
    classes = {spec.name for spec in feeding.signature.outputs}
    found = case(made.path, feeding, FirstSamples(roles["calibration"], 32), search, {"int8": SCHEMES.make("int8")}, classes=classes)
    taken = compared("A1", found, monkeypatch, 0.9)
    assert taken <= PASSES


def test_c1_alike_in_rank(monkeypatch):
    """A language model: effects are divergences of what it foretells. Windows of the recipe's own calibration texts, few, for the exact ones take long."""
    from quant.data.first import FirstSamples
    from quant.data.span import Span
    from quant.schemes import SCHEMES

    bound, made = prepared("language-model", ["data.splits.calibration.samples=20", "data.inputs.length=96", "data.splits.calibration.data.inputs.length=96"])
    windows = made.data.roles["calibration"]
    feeding = made.feeding(bound, 1)
    classes = {spec.name for spec in feeding.signature.outputs if spec.dtype == "float32"}
    schemes = {"int8": SCHEMES.make("int8")}
    found = case(made.path, feeding, FirstSamples(windows, 8), Span(windows, 8, len(windows)), schemes, classes=classes)
    compared("C1", found, monkeypatch, 0.9)
