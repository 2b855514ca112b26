"""What training makes small: the distance to labels, or to what the FP32 model gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch.nn import functional

from quant.data.batches import output_axes
from quant.errors import DataError, ModelError
from quant.twin.training.batches import Part
from quant.twin.training.material import Material

_MOVING = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Cast", "DequantizeLinear", "QuantizeLinear"})
_LEAST = 1e-12
Arrays = Mapping[str, npt.NDArray[Any]]
Tensors = Mapping[str, torch.Tensor]
Scores = Literal["logits", "probabilities", "sigmoid", "logarithms"]


def scores_of(model: ir.Model, output: str) -> Scores:
    """What an output that tells classes holds, by the operator that makes it: logits, where none of the known ones does."""
    value = next((v for v in model.graph.outputs if v.name == output), None)
    maker = value.producer() if value is not None else None
    while maker is not None and maker.op_type in _MOVING and maker.inputs[0] is not None:
        maker = maker.inputs[0].producer()
    kinds: dict[str, Scores] = {"Softmax": "probabilities", "LogSoftmax": "logarithms", "Sigmoid": "sigmoid"}
    return kinds.get(maker.op_type, "logits") if maker is not None else "logits"


def log_scores(found: torch.Tensor, kind: Scores) -> torch.Tensor:
    """Scores whose softmax (or, of one column, sigmoid) are the probabilities."""
    if kind == "probabilities":
        return torch.log(torch.clamp(found, min=_LEAST))
    if kind == "sigmoid":
        inside = torch.clamp(found, _LEAST, 1 - 1e-6)
        return torch.log(inside) - torch.log1p(-inside)
    return found


class Rows:
    """Brings outputs into rows, one for each feed that counts.

    Args:
        material: What is trained on.
    """

    def __init__(self, material: Material) -> None:
        self._axes = output_axes(material.signature, material.batch_axes)

    def __call__(self, name: str, tensor: torch.Tensor, part: Part) -> torch.Tensor:
        """`tensor` as `[rows, ...]`."""
        axis = self._axes.get(name, 0)
        if axis is None or tensor.dim() <= axis or tensor.shape[axis] < part.rows:
            return tensor.unsqueeze(0) if part.rows == 1 else tensor.reshape(part.rows, -1)
        return tensor.movedim(axis, 0)[: part.rows]


@dataclass(frozen=True)
class LabelLoss:
    """Distance to labels.

    Args:
        output: The output that they are about.
        scores: What it holds.
        task: `classes` (cross-entropy over its last axis), `yes or no` (one column, cross-entropy), or `numbers` (squared error).
        spread: `numbers`: mean square of the labels about their mean, which errors are measured against.
        rows: How outputs become rows.
    """

    output: str
    scores: Scores
    task: Literal["classes", "yes or no", "numbers"]
    spread: float
    rows: Rows

    @property
    def teacher(self) -> tuple[str, ...]:
        """Outputs of the FP32 model that are wanted: none."""
        return ()

    @property
    def words(self) -> str:
        """What it is, for reports."""
        what = "squared error" if self.task == "numbers" else "cross-entropy"
        return f"{what} of output {self.output!r} against labels"

    def __call__(self, found: Tensors, wanted: Arrays, part: Part) -> torch.Tensor:
        """The sum over rows."""
        del wanted
        outputs = self.rows(self.output, found[self.output], part)
        labels = np.stack([np.asarray(label) for label in part.labels])
        if self.task == "classes":
            scores = log_scores(outputs, self.scores)
            flat = functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), torch.from_numpy(labels.astype(np.int64)).reshape(-1), reduction="none")
            return flat.reshape(part.rows, -1).mean(dim=1).sum()
        numbers = torch.from_numpy(labels.astype(np.float32)).reshape(part.rows, -1)
        outputs = outputs.reshape(part.rows, -1)
        if self.task == "yes or no":
            return functional.binary_cross_entropy_with_logits(log_scores(outputs, self.scores), numbers, reduction="none").mean(dim=1).sum()
        return (outputs - numbers).square().mean(dim=1).sum() / self.spread


@dataclass(frozen=True)
class Distillation:
    """Distance to what the FP32 model gives: KL divergence of scores of classes, squared error of everything else, as a share of its square.

    Args:
        scores: Output with scores of classes -> what it holds.
        squares: Any other output, or inner tensor -> mean square of the FP32 model's.
        weights: Weight of each of these; 1 where not named.
        temperature: What scores are divided by.
        rows: How outputs become rows.
    """

    scores: Mapping[str, Scores]
    squares: Mapping[str, float]
    weights: Mapping[str, float]
    temperature: float
    rows: Rows

    @property
    def teacher(self) -> tuple[str, ...]:
        """Outputs of the FP32 model that are wanted."""
        return (*self.scores, *self.squares)

    @property
    def words(self) -> str:
        """What it is, for reports."""
        inner = len(self.weights)
        outputs = [*self.scores, *(name for name in self.squares if name not in self.weights)]
        said = [f"{'KL divergence' if name in self.scores else 'squared error'} of output {name!r}" for name in outputs]
        return f"distillation from FP32: {', '.join(said)}" + (f", squared error of what {inner} of its layers give" if inner else "")

    def __call__(self, found: Tensors, wanted: Arrays, part: Part) -> torch.Tensor:
        """The sum over rows."""
        total = torch.zeros(())
        for name, kind in self.scores.items():
            ours, theirs = (self.rows(name, tensor, part) for tensor in (found[name], torch.from_numpy(wanted[name])))
            total = total + self._divergence(log_scores(ours, kind), log_scores(theirs, kind)).reshape(part.rows, -1).mean(dim=1).sum()
        for name, square in self.squares.items():
            ours, theirs = (self.rows(name, tensor, part) for tensor in (found[name], torch.from_numpy(wanted[name])))
            error = (ours - theirs).square().reshape(part.rows, -1).mean(dim=1).sum() / square
            total = total + self.weights.get(name, 1.0) * error
        return total

    def _divergence(self, ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        ours, theirs = (torch.log_softmax(scores / self.temperature, dim=-1) for scores in (ours, theirs))
        return (theirs.exp() * (theirs - ours)).sum(dim=-1) * self.temperature**2


Loss = LabelLoss | Distillation


def label_loss(material: Material, model: ir.Model, output: str | None, labels: Sequence[Any], example: npt.NDArray[Any]) -> LabelLoss:
    """The loss that labels ask for.

    Args:
        material: What is trained on.
        model: The FP32 graph.
        output: The output that labels are about.
        labels: All of them.
        example: That output for one feed, without a batch axis.

    Raises:
        DataError: The labels are texts, or do not fit the output.
    """
    name = output or first_output(material)
    kinds = {np.asarray(label).dtype.kind for label in labels}
    if not kinds <= set("iufb"):
        raise DataError(f"labels such as {labels[0]!r} are nothing that a loss can be taken of", hint="`loss: distillation` needs no labels")
    whole = kinds <= set("iub")
    largest = max(int(np.max(label, initial=0)) for label in labels) if whole else 0
    shape = np.shape(labels[0])
    kind, rows = scores_of(model, name), Rows(material)
    if whole and example.shape[:-1] == shape and example.shape[-1:] not in {(), (1,)}:
        if largest >= example.shape[-1]:
            raise DataError(f"label {largest} is beyond the {example.shape[-1]} classes of output {name!r}", hint="name another with `output`")
        return LabelLoss(name, kind, "classes", 1.0, rows)
    if example.size != max(1, int(np.prod(shape))):
        what = f"labels of shape {list(shape)} do not fit output {name!r}, which is {list(example.shape)} for each sample"
        raise DataError(what, hint="name another with `output`, or use `loss: distillation`, which needs no labels")
    if whole and largest <= 1:
        return LabelLoss(name, kind, "yes or no", 1.0, rows)
    every = np.concatenate([np.asarray(label, np.float64).reshape(-1) for label in labels])
    return LabelLoss(name, kind, "numbers", float(every.var()) or 1.0, rows)


def distillation(
    material: Material, model: ir.Model, features: Sequence[str], examples: Sequence[Arrays], *, weight: float, temperature: float
) -> Distillation:
    """The loss against the FP32 model.

    Args:
        material: What is trained on.
        model: The FP32 graph.
        features: Inner tensors that count too.
        examples: What the FP32 model gives for a few batches.
        weight: Weight of all features together.
        temperature: What scores of classes are divided by.

    Raises:
        ModelError: The model has no float output, or what it gives is not finite.
    """
    outputs = [spec.name for spec in material.signature.outputs if spec.dtype.startswith("float")]
    if not outputs:
        raise ModelError("the model has no float output, so there is nothing to distil", hint="give labels with `data.splits.train`")
    squares: dict[str, float] = {}
    for name in (*outputs, *features):
        values = [np.asarray(found[name], np.float64) for found in examples]
        if not all(np.isfinite(v).all() for v in values):
            raise ModelError(f"{name!r} of the FP32 model is not finite on the training samples", hint="look for an overflow in the model")
        squares[name] = float(sum(np.square(v).sum() for v in values) / max(1, sum(v.size for v in values))) or 1.0
    scores = {name: scores_of(model, name) for name in outputs if name in material.classes and _columns(examples[0][name]) > 1}
    rest = {name: square for name, square in squares.items() if name not in scores}
    return Distillation(scores, rest, {name: weight / len(features) for name in features}, temperature, Rows(material))


def first_output(material: Material) -> str:
    """The first float output.

    Raises:
        ModelError: There is none.
    """
    found = next((spec.name for spec in material.signature.outputs if spec.dtype.startswith("float")), None)
    if found is None:
        raise ModelError("the model has no float output, so nothing can be learned from labels", hint="give it out before the argmax, say")
    return found


def _columns(array: npt.NDArray[Any]) -> int:
    return int(array.shape[-1]) if array.ndim > 1 else 1
