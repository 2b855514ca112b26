"""Every artifact against the plain meaning of the graph that it was made from, kept like any other stage's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from evaluators.agreement import Agreement
from quant.engine.candidates import Built, Workshop
from quant.engine.machine import environment
from quant.errors import ModelError
from quant.graph.runtime import Runtime
from quant.stages.agree import Load, Meaning, agree, feeds_of, outputs_of
from quant.stages.running import Array, Outputs, Run
from quant.targets import Target

_PLAIN, _AGREEMENT = "plain.npz", "agreement.json"
_SEPARATOR = ":"


def agreement(workshop: Workshop, built: Built) -> Agreement | None:
    """How the engine of `built` agrees with its graph; None where nothing is to be compared: asked for no samples, or the engine runs elsewhere."""
    samples = min(workshop.bound.loaded.recipe.evaluation.agreement_samples, len(workshop.prepared.data.roles["evaluation"]))
    engine = workshop.bound.targets[built.target]
    if samples == 0 or engine.ahead_of_time:
        return None
    meant = _plain(workshop)

    def produce(folder: Path) -> None:
        feeds, exact = _read(meant)
        _agreement(engine, built, feeds=feeds, exact=exact, samples=samples).save(folder / _AGREEMENT)

    key = {**_key(workshop), "artifact": built.artifact.digest, "version": engine.available().version}
    return Agreement.load(workshop.cache.stage(f"agree:{built.name}", key, produce) / _AGREEMENT)


def _agreement(engine: Target, built: Built, *, feeds: Sequence[Mapping[str, Array]], exact: Sequence[Outputs], samples: int) -> Agreement:
    try:
        meaning = Meaning.of(built.graph, feeds, exact)
    except ModelError as error:
        return Agreement(agrees=None, samples=0, reason=f"the graph has no plain meaning here: {' '.join(error.what.split())}")
    session = engine.session(built.artifact, built.folder, threads=1)
    return agree(meaning, session.run, loader(engine), samples=samples)


def loader(engine: Target) -> Load:
    """What exports a graph for `engine` and loads it there."""

    def load(model: ir.Model, folder: Path) -> Run:
        return engine.session(engine.export(model, folder, scheme="look"), folder, threads=1).run

    return load


def _plain(workshop: Workshop) -> Path:
    """File of the first evaluation samples as they go into the model, and of what the FP32 model means by them: its graph as it is written.

    Raises:
        QuantError: A sample cannot be used.
    """
    recipe = workshop.bound.loaded.recipe
    feeding = workshop.prepared.feeding(workshop.bound, recipe.evaluation.batch_size)

    def produce(folder: Path) -> None:
        run = Runtime(workshop.prepared.path, optimize=False).run
        feeds = feeds_of(workshop.prepared.data.roles["evaluation"], feeding, run, most=recipe.evaluation.agreement_samples)
        outputs = outputs_of(run, feeds)
        arrays: dict[str, Any] = {}
        for number, (feed, found) in enumerate(zip(feeds[: len(outputs)], outputs, strict=True)):
            arrays |= {_SEPARATOR.join((kind, str(number), name)): array for kind, part in (("in", feed), ("out", found)) for name, array in part.items()}
        np.savez(folder / _PLAIN, allow_pickle=False, **arrays)

    return workshop.cache.stage("plain", _key(workshop), produce) / _PLAIN


def _read(place: Path) -> tuple[list[dict[str, Array]], list[Outputs]]:
    """The inputs and the outputs in a file that `_plain` gives."""
    found: dict[str, list[dict[str, Array]]] = {"in": [], "out": []}
    with np.load(place, allow_pickle=False) as arrays:
        for whole in arrays.files:
            kind, number, name = whole.split(_SEPARATOR, 2)
            if int(number) == len(found[kind]):
                found[kind].append({})
            found[kind][int(number)][name] = arrays[whole]
    return found["in"], found["out"]


def _key(workshop: Workshop) -> dict[str, Any]:
    spec, recipe = workshop.bound.loaded.recipe.model, workshop.bound.loaded.recipe
    samples = workshop.prepared.data.roles["evaluation"]
    return {
        "model": workshop.prepared.digest,
        "data": samples.digest,
        "batch": recipe.evaluation.batch_size,
        "samples": recipe.evaluation.agreement_samples,
        "state": spec.state,
        "axes": spec.batch_axes,
        "machine": environment(),
    }
