"""Training a graph with placed quantizers, from labels or from the FP32 model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from quant.data.samples import Samples
from quant.errors import DataError
from quant.graph.layers import FLOAT32
from quant.graph.model import read_model
from quant.graph.qdq import Placed
from quant.graph.runtime import Runtime
from quant.twin.training.batches import Part, parts_of, rows_of_part
from quant.twin.training.fit import Fitting, Teacher, exact, fit
from quant.twin.training.losses import Loss, distillation, first_output, label_loss
from quant.twin.training.material import Material, Trained, refuse_state
from quant.twin.training.options import TrainingOptions
from quant.twin.training.trainable import Trainable

_EXAMPLES = 8
"""Parts that the size of the FP32 model's outputs is taken from."""


def train(model: ir.Model, placed: Placed, options: TrainingOptions, material: Material) -> Trained:
    """Train `model` (`place_qdq`), in place: its weights, biases and scales.

    Raises:
        ModelError: The model has a state, or an operator or a form of one that cannot be trained, or training diverges.
        DataError: Samples or labels cannot be used.
    """
    refuse_state(material.state)
    with exact():
        examples = list(islice(parts_of(material, material.samples, rows_of_part(options.batch_size)), _EXAMPLES))
        features = _features(model, placed, material) if options.features and _loss_kind(options, material) == "distillation" else ()
        given = len(model.graph.outputs)
        _give_out(model, features)
        teacher = _teacher(material, features)
        loss = _loss(options, material, features, examples, teacher)
        trainable = Trainable(model, placed, learn_scales=options.learn_scales, check=[examples[0].feed])
        epochs, kept = fit(Fitting(trainable, material, options, loss, _wanted(teacher, loss)))
        del model.graph.outputs[given:]
        trainable.write_back(model)
    learned = {name: (found.low, found.high) for name, found in trainable.ranges().items()}
    samples = material.samples
    return Trained(
        role=samples.role,
        samples=len(samples),
        loss=loss.words,
        epochs=epochs,
        kept=kept,
        weights=len(trainable.weights),
        scales=len(trainable.scales),
        ranges=learned,
    )


def labels_of(samples: Samples) -> list[Any]:
    """The label of every sample; made without making the samples where that can be."""
    entries = getattr(samples, "entries", None)
    return [entry.label for entry in entries] if entries is not None else [sample.label for sample in samples]


def _loss_kind(options: TrainingOptions, material: Material) -> str:
    """`labels` or `distillation`."""
    samples = material.samples
    if options.loss != "auto":
        return options.loss
    output = options.output or next((spec.name for spec in material.signature.outputs if spec.dtype.startswith("float")), None)
    usable = samples.role == "train" and output in material.judged and len(samples[0].feeds) == 1
    return "labels" if usable and all(label is not None and not isinstance(label, str) for label in labels_of(samples)) else "distillation"


def _loss(options: TrainingOptions, material: Material, features: Sequence[str], examples: Sequence[Part], teacher: Runtime) -> Loss:
    graph = read_model(material.model)
    if _loss_kind(options, material) == "labels":
        labels = labels_of(material.samples)
        missing = next((place for place, label in enumerate(labels) if label is None), None)
        if missing is not None:
            what = f"{material.samples.role} sample {material.samples[missing].index} has no label"
            raise DataError(what, hint="say where labels come from with `data.label`, or use `loss: distillation`, which needs none")
        if len(material.samples[0].feeds) != 1:
            raise DataError("samples of several feeds have one label for all", hint="use `loss: distillation`, which needs no labels")
        name = options.output or first_output(material)
        shown = teacher.run(examples[0].feed, [name])[name]
        return label_loss(material, graph, name, labels, shown[0] if shown.ndim else shown)
    found = [teacher.run(part.feed) for part in examples]
    return distillation(material, graph, features, found, weight=options.features, temperature=options.temperature)


def _features(model: ir.Model, placed: Placed, material: Material) -> tuple[str, ...]:
    """What layers with a placed weight give, where the FP32 graph gives it under the same name."""
    theirs = {str(v.name) for node in read_model(material.model).graph for v in node.outputs if v.dtype == FLOAT32}
    outputs = {spec.name for spec in material.signature.outputs}
    layers = {weight.layer for weight in placed.weights}
    names = [str(node.outputs[0].name) for node in model.graph if node.name in layers]
    return tuple(name for name in names if name in theirs - outputs)


def _give_out(model: ir.Model, names: Sequence[str]) -> None:
    values = {str(v.name): v for node in model.graph for v in node.outputs}
    model.graph.outputs.extend(values[name] for name in names)


def _teacher(material: Material, features: Sequence[str]) -> Runtime:
    """The FP32 model, which also gives out `features`."""
    if not features:
        return Runtime(material.model)
    model = read_model(material.model)
    _give_out(model, features)
    return Runtime(model, folder=material.model.parent)


def _wanted(teacher: Runtime, loss: Loss) -> Teacher:
    def run(feed: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        return teacher.run(feed, loss.teacher)

    return run
