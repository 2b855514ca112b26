"""Bringing in the model and the data: sources fetched, the graph imported and cleaned, a head fitted, samples bound to inputs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from quant.core.digest import digest_of, digest_of_file, digest_of_folder
from quant.core.progress import progress
from quant.core.signature import Signature
from quant.data.code import is_ours
from quant.data.load import Data, load_data
from quant.data.samples import Feed, Samples
from quant.data.sources import fetch, parse
from quant.data.sources.references import FunctionSource
from quant.engine.bind import Bound
from quant.engine.cache import StageCache
from quant.engine.checks import check_labels, check_model_names, check_sizes
from quant.errors import DataError, QuantError
from quant.graph.importing import HeadReport, ImportReport, fit_linear_probe, import_model
from quant.graph.importing.bring import import_module
from quant.graph.importing.kinds import find_onnx, is_gguf, model_kind
from quant.graph.importing.onnx_file import read_onnx
from quant.graph.layers import Layer, find_layers
from quant.graph.model import MODEL_FILE, model_digest, read_model, signature
from quant.graph.runtime import Runtime
from quant.recipe.schema import Head, ModelSpec
from quant.stages.running import Feeding, run_samples

_SOURCE = ("model", "source")
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
    given = _given(bound)
    source = given.source
    if given.signature is not None:
        check_model_names(bound, given.signature)
    data = load_data(loaded.recipe.data, base=loaded.path, where=loaded.where, trust_code=trust_code, model_folder=given.folder)
    check_sizes(bound, data)
    check_labels(bound, data)
    examples = _examples(data, given.signature, bound)
    train = data.roles.get("train")
    path, report = brought_in(spec, source, cache, base=loaded.path, where=loaded.where(_SOURCE), trust_code=trust_code, examples=examples, train=train)
    check_model_names(bound, signature(read_model(path)))
    head = None
    if spec.head is not None:
        folder = _fit_head(bound, cache, spec.head, path, data)
        path, head = folder / MODEL_FILE, HeadReport.load(folder / _HEAD_REPORT)
    return _prepared(spec, path, data, report, head)


def brought_in(
    spec: ModelSpec,
    source: Path | None,
    cache: StageCache,
    *,
    base: Path,
    where: str,
    trust_code: bool,
    examples: list[Feed],
    train: Samples | None = None,
) -> tuple[Path, ImportReport]:
    """The graph of a model, and how it was brought in.

    Args:
        spec: What is said of the model.
        source: Its file or folder; None when code makes it.
        cache: Where stage results are.
        base: Folder that `module:function` starts from.
        where: Place for messages.
        trust_code: Whether code that `spec` names may run.
        examples: A few feeds, without the batch axis.
        train: Samples for code that asks for them.

    Raises:
        ModelError: The model cannot be read, exported, converted or run.
    """

    def produce(folder: Path) -> None:
        report = import_model(spec, source, folder, base=base, where=where, trust_code=trust_code, examples=examples, batch_axes=spec.batch_axes, train=train)
        report.save(folder / _REPORT)

    key = {"model": _model_key(spec, source, train), "spec": spec.model_dump(mode="json", exclude={"head"}), "examples": _feeds_digest(examples)}
    folder = cache.stage("import", key, produce)
    return folder / MODEL_FILE, ImportReport.load(folder / _REPORT)


def prepare_module(bound: Bound, module: Any, folder: Path, *, trust_code: bool) -> Prepared:
    """As `prepare`, with a torch module in place of the recipe's model; its graph is written into `folder`.

    Raises:
        QuantError: The data cannot be used, or the module cannot be exported.
    """
    loaded = bound.loaded
    spec = loaded.recipe.model
    data = load_data(loaded.recipe.data, base=loaded.path, where=loaded.where, trust_code=trust_code)
    check_sizes(bound, data)
    check_labels(bound, data)
    report = import_module(module, folder, examples=_examples(data, None, bound), batch_axes=spec.batch_axes, where="module")
    return _prepared(spec, folder / MODEL_FILE, data, report, None)


def _prepared(spec: ModelSpec, path: Path, data: Data, report: ImportReport, head: HeadReport | None) -> Prepared:
    model = read_model(path)
    found = signature(model)
    data = data.bind(found, state_inputs=set(spec.state), batch_axes=spec.batch_axes)
    parameters = sum(v.const_value.size for v in model.graph.initializers.values() if v.const_value is not None)
    return Prepared(path, model_digest(path), found, find_layers(model), data, report, head, parameters)


@dataclass(frozen=True)
class _Given:
    """The model as the recipe gives it: its file or folder (None when code makes it), what a tokenizer may be found in, and the signature of a graph."""

    source: Path | None = None
    folder: Path | None = None
    signature: Signature | None = None


def _given(bound: Bound) -> _Given:
    """What `model.source` names, looked at as far as can be without importing it."""
    spec = bound.loaded.recipe.model
    where = bound.loaded.where(_SOURCE)
    try:
        if isinstance(parse(spec.source), FunctionSource):
            return _Given()
        source = fetch(spec, base=bound.loaded.path, where=where)
        kind = model_kind(spec, source, where="")
        folder = source if source.is_dir() or kind == "gguf" else None  # where a processor looks for the tokenizer
        if kind != "onnx":
            return _Given(source, folder)
        file = find_onnx(source)
        return _Given(file, folder, signature(read_onnx(file)))
    except QuantError as error:
        raise error.at(where) from error


def _model_key(spec: ModelSpec, source: Path | None, train: Samples | None) -> str:
    """What the imported graph depends on, besides what the recipe says of it."""
    if source is not None:
        if source.is_dir():
            return digest_of_folder(source)
        return digest_of_file(source) if is_gguf(source) else model_digest(source)
    if is_ours(spec.source) and ("source" not in spec.arguments or "sha256" in spec.arguments):
        return f"made by the toolkit from {train.digest if train is not None else 'its arguments'}"  # its code is part of every key
    return f"made by code {uuid.uuid4()}"  # what code makes may differ each time; what follows is keyed by its content


def _examples(data: Data, given: Signature | None, bound: Bound) -> list[Feed]:
    """A few feeds for the importer; brought to the graph's names and types where there is a graph already."""
    spec = bound.loaded.recipe.model
    if given is not None:
        data = data.bind(given, state_inputs=set(spec.state), batch_axes=spec.batch_axes)
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
        raise DataError(
            "a head needs a `train` split to be fitted on", where=loaded.where(("data", "splits")), hint="give `data.splits.train`, as in `train: 0.5`"
        )
    samples = bound_data.roles["train"]
    output = head.output or next((spec.name for spec in found.outputs if spec.dtype.startswith("float")), found.outputs[0].name)

    def produce(folder: Path) -> None:
        embeddings, labels = _embed(path, samples, Feeding(found, loaded.recipe.evaluation.batch_size), output)
        try:
            fit_linear_probe(path, folder, head, embeddings, labels).save(folder / _HEAD_REPORT)
        except QuantError as error:
            raise error.at(where) from error

    return cache.stage(
        "head",
        {"model": model_digest(path), "data": samples.digest, "head": head.model_dump(mode="json"), "batch": loaded.recipe.evaluation.batch_size},
        produce,
    )


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
