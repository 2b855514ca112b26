"""Bringing in the model and the data: sources fetched, the graph imported and cleaned, a head fitted, samples bound to inputs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from quant.core.digest import digest_of, digest_of_folder
from quant.core.progress import progress
from quant.core.signature import Signature
from quant.data.load import Data, load_data
from quant.data.samples import Feed, Samples
from quant.data.sources import fetch, parse
from quant.data.sources.references import FunctionSource
from quant.engine.bind import Bound
from quant.engine.cache import StageCache
from quant.errors import DataError, QuantError
from quant.graph.importing import HeadReport, ImportReport, fit_linear_probe, import_model
from quant.graph.layers import Layer, find_layers
from quant.graph.model import model_digest, read_model, signature
from quant.graph.runtime import Runtime
from quant.recipe.schema import Head
from quant.stages.running import Feeding, run_samples

_EXAMPLES = 2
_REPORT = "import.json"
_HEAD_REPORT = "head.json"


@dataclass(frozen=True)
class Prepared:
    """The FP32 model as an ONNX graph, and the samples that go into it.

    Args:
        path: The graph.
        digest: Digest of the graph and its weights.
        signature: Its inputs and outputs.
        layers: Its layers.
        data: The samples by role, bound to the inputs.
        report: How the model was brought in.
        head: How its head was fitted; None without one.
        parameters: Number of weights.
    """

    path: Path
    digest: str
    signature: Signature
    layers: tuple[Layer, ...]
    data: Data
    report: ImportReport
    head: HeadReport | None
    parameters: int

    def feeding(self, bound: Bound, batch_size: int) -> Feeding:
        """How samples go into this model."""
        spec = bound.loaded.recipe.model
        return Feeding(self.signature, batch_size, spec.state, spec.batch_axes)


def prepare(bound: Bound, cache: StageCache, *, trust_code: bool) -> Prepared:
    """Bring in what the recipe names.

    Raises:
        QuantError: A source, the model or the data cannot be used; the message says where.
    """
    loaded = bound.loaded
    spec = loaded.recipe.model
    source = _model_source(bound)
    data = load_data(loaded.recipe.data, base=loaded.path, where=loaded.where, trust_code=trust_code, model_folder=source if source and source.is_dir() else None)
    examples = _examples(data, source, bound)

    def produce(folder: Path) -> None:
        report = import_model(spec, source, folder, base=loaded.path, where=loaded.where(("model", "source")), trust_code=trust_code, examples=examples, batch_axes=spec.batch_axes)
        report.save(folder / _REPORT)

    key = {"model": _source_digest(source), "spec": spec.model_dump(mode="json", exclude={"head"}), "examples": _feeds_digest(examples)}
    folder = cache.stage("import", key, produce)
    report = ImportReport.load(folder / _REPORT)
    path = folder / "model.onnx"
    head = None
    if spec.head is not None:
        folder = _fit_head(bound, cache, spec.head, path, data)
        path, head = folder / "model.onnx", HeadReport.load(folder / _HEAD_REPORT)
    model = read_model(path)
    found = signature(model)
    data = data.bind(found, state_inputs=set(spec.state), batch_axes=spec.batch_axes)
    parameters = sum(v.const_value.size for v in model.graph.initializers.values() if v.const_value is not None)
    return Prepared(path, model_digest(path), found, find_layers(model), data, report, head, parameters)


def _model_source(bound: Bound) -> Path | None:
    """The model's local path; None when code makes it."""
    loaded = bound.loaded
    where = loaded.where(("model", "source"))
    try:
        if isinstance(parse(loaded.recipe.model.source), FunctionSource):
            return None
        return fetch(loaded.recipe.model, base=loaded.path, where=where)
    except QuantError as error:
        raise error.at(where) from error


def _source_digest(source: Path | None) -> str:
    if source is None:
        return f"made by code {uuid.uuid4()}"  # what code makes may differ each time; what follows is keyed by its content
    return digest_of_folder(source) if source.is_dir() else model_digest(source) if source.suffix == ".onnx" else digest_of(source.name)


def _examples(data: Data, source: Path | None, bound: Bound) -> list[Feed]:
    """A few feeds for the importer; brought to the graph's names and types where there is a graph already."""
    spec = bound.loaded.recipe.model
    if source is not None and source.is_file() and source.suffix == ".onnx":
        data = data.bind(signature(read_model(source)), state_inputs=set(spec.state), batch_axes=spec.batch_axes)
    samples = data.roles["calibration"]
    return [sample.feeds[0] for sample in islice(samples, _EXAMPLES)]


def _feeds_digest(feeds: list[Feed]) -> str:
    return digest_of([{k: [str(v.dtype), list(v.shape), v.tobytes().hex()] for k, v in feed.items()} for feed in feeds])


def _fit_head(bound: Bound, cache: StageCache, head: Head, path: Path, data: Data) -> Path:
    """Fit a head on the FP32 embeddings of the train split and fuse it into the graph."""
    loaded = bound.loaded
    where = loaded.where(("model", "head"))
    found = signature(read_model(path))
    bound_data = data.bind(found, batch_axes=loaded.recipe.model.batch_axes)
    if "train" not in bound_data.roles:
        raise DataError("a head needs a `train` split to be fitted on", where=loaded.where(("data", "splits")), hint="give `data.splits.train`, as in `train: 0.5`")
    samples = bound_data.roles["train"]
    output = head.output or next((spec.name for spec in found.outputs if spec.dtype.startswith("float")), found.outputs[0].name)

    def produce(folder: Path) -> None:
        embeddings, labels = _embed(path, samples, Feeding(found, loaded.recipe.evaluation.batch_size), output)
        try:
            fit_linear_probe(path, folder, head, embeddings, labels).save(folder / _HEAD_REPORT)
        except QuantError as error:
            raise error.at(where) from error

    return cache.stage("head", {"model": model_digest(path), "data": samples.digest, "head": head.model_dump(mode="json"), "batch": loaded.recipe.evaluation.batch_size}, produce)


def _embed(path: Path, samples: Samples, feeding: Feeding, output: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Embeddings `[n, d]` and labels `[n]` of all train samples, in their order."""
    runtime = Runtime(path)
    rows: dict[int, np.ndarray[Any, Any]] = {}
    with progress("embedding the train split", len(samples)) as advance:
        for position, outputs in run_samples(runtime.run, samples, feeding):
            rows[position] = outputs[0][output]
            advance(1)
    labels = [_class_of(sample.label, sample.index) for sample in samples]
    return np.stack([rows[i] for i in range(len(rows))]), np.asarray(labels, np.int64)


def _class_of(label: object, index: int) -> int:
    if isinstance(label, bool) or not isinstance(label, int | np.integer) or label < 0:
        raise DataError(f"sample {index} has label {label!r}, a linear probe wants classes 0, 1, 2, ...", hint="say how labels are read with `data.label`")
    return int(label)


def check_labels(prepared: Prepared, bound: Bound) -> None:
    """Every metric accepts the label of every evaluation sample.

    Raises:
        DataError: One does not; the message names the sample.
    """
    if not bound.metrics:
        return
    for sample in _labels(prepared.data.roles["evaluation"]):
        for name, metric in bound.metrics.items():
            try:
                metric.check_label(sample[1])
            except DataError as error:
                raise error.at(f"evaluation sample {sample[0]} (metric {name})") from error


def _labels(samples: Samples) -> list[tuple[int, object]]:
    entries = getattr(samples, "entries", None)
    return [(e.index, e.label) for e in entries] if entries is not None else [(s.index, s.label) for s in samples]
