"""Profiles of small graphs; a test file loads this one by its path."""

import importlib.util
from pathlib import Path

import onnx

from calibrators import CALIBRATORS
from quant.core.signature import Signature
from quant.data.samples import Sample
from quant.graph.layers import find_layers
from quant.graph.model import read_model, signature
from quant.schemes import SCHEMES
from quant.sensitivity import ESTIMATORS
from quant.stages.calibrate import calibrate
from quant.stages.profile import Profiling, profile
from quant.stages.running import Feeding
from quant.targets import TARGETS

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)
DIALECT = TARGETS.make("onnxruntime").dialect
SAMPLES = 6


class Feeds(list):
    """Samples of one feed each."""

    role, digest = "search", "feeds"


def _without_batch(proto, seed):
    """One feed: inputs whose first axis is free are given without it; they are batched again."""
    free = {v.name for v in proto.graph.input if v.type.tensor_type.shape.dim and v.type.tensor_type.shape.dim[0].dim_param == "N"}
    return {name: array[0] if name in free else array for name, array in zoo.feed(proto, seed).items()}


def prepared(proto, folder, schemes=None, *, samples=None, dialect=DIALECT, batch=3, **work):
    """(path, what a profile is made for, calibration)."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    onnx.save(proto, path)
    model = read_model(path)
    schemes = schemes or {"int8": SCHEMES.make("int8")}
    spec: Signature = signature(model)
    axes = {s.name: 0 if s.shape and s.shape[0] == "N" else None for s in spec.inputs}
    feeding = Feeding(spec, batch, batch_axes=axes)
    samples = samples or Feeds(Sample(i, (_without_batch(proto, i),)) for i in range(SAMPLES))
    layers = find_layers(model)
    needs = [scheme.needs(model, scheme.plan(model, layers, dialect), dialect) for scheme in schemes.values()]
    table = calibrate(
        path,
        samples,
        sorted({name for n in needs for name in n.ranges}),
        feeding,
        magnitudes=any(n.magnitudes for n in needs),
        digest="m",
        means=sorted({name for n in needs for name in n.means}),
        moments={name: size for n in needs for name, size in n.moments.items()},
    )
    return path, Profiling(schemes, dialect, CALIBRATORS.make("minmax"), feeding, samples, **work), table


def profiled(proto, folder, kind, options=None, *, layers=(), **more):
    """The profile of a graph."""
    path, work, table = prepared(proto, folder, **more)
    return profile(path, work, table=table, estimator=ESTIMATORS.make(kind, options), layers=layers)
