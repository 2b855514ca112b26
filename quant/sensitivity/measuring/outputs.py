"""What is measured of each output of a model, and its distance from FP32."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from scipy.special import log_softmax

from quant.core.registry import did_you_mean
from quant.core.signature import Signature, TensorSpec
from quant.data.batches import Batch, output_axes
from quant.data.samples import Samples
from quant.errors import ModelError, RecipeError

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
Measure = Literal["output_error", "kl"]
Scores = Literal["logits", "probabilities", "logarithms"]
_LEAST = 1e-12
_MOVING = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Cast", "DequantizeLinear", "QuantizeLinear"})
_SCORES: Mapping[str, Scores] = {"Softmax": "probabilities", "LogSoftmax": "logarithms"}
_PLACES = 1
"""The axis behind the batch: along it lie the places of a sequence, which a mask can leave out."""


@dataclass(frozen=True)
class OutputMeasure:
    """What is measured of one output.

    Args:
        output: Its name.
        measure: `kl` where its last axis are scores of classes, else `output_error`.
        scores: What these scores are.
        weight: Its weight among the outputs.
    """

    output: str
    measure: Measure
    scores: Scores = "logits"
    weight: float = 1.0


def choose_measures(
    model: ir.Model, signature: Signature, *, classes: Collection[str] = (), weights: Mapping[str, float] | None = None
) -> tuple[OutputMeasure, ...]:
    """What is measured of each float output.

    Args:
        model: The FP32 graph.
        signature: Its inputs and outputs.
        classes: Outputs whose last axis are scores of classes, as the metrics of a recipe tell.
        weights: Output -> its weight; 1 for those not named, and 0 leaves one out.

    Raises:
        RecipeError: A weight is negative, or that of no float output.
        ModelError: No output is left that could be measured.
    """
    weights = weights or {}
    known = [spec.name for spec in signature.outputs if spec.dtype.startswith("float")]
    for name, weight in weights.items():
        if name not in known:
            raise RecipeError(f"a weight is given to {name!r}, which is no float output", hint=did_you_mean(name, known))
        if not (weight >= 0 and np.isfinite(weight)):
            raise RecipeError(f"the weight of output {name!r} is {weight}", hint="give a number that is not negative")
    chosen = tuple(_measure(model, spec, spec.name in classes, weights.get(spec.name, 1.0)) for spec in signature.outputs if spec.name in known)
    found = tuple(measure for measure in chosen if measure.weight > 0)
    if not found:
        raise ModelError("the model has no float output whose error could be measured", hint="give it out before the argmax, say")
    return found


def _measure(model: ir.Model, spec: TensorSpec, tells_classes: bool, weight: float) -> OutputMeasure:  # noqa: FBT001 - of this file
    last = spec.shape[-1] if spec.shape else None
    kind = _scores_of(model, spec.name)
    if not tells_classes or last == 1 or kind is None or len(spec.shape or ()) == 1:
        return OutputMeasure(spec.name, "output_error", weight=weight)
    return OutputMeasure(spec.name, "kl", kind, weight)


def _scores_of(model: ir.Model, output: str) -> Scores | None:
    """What an output that tells classes holds, by the operator that makes it; None for a sigmoid, whose classes are no distribution."""
    value = next((v for v in model.graph.outputs if v.name == output), None)
    maker = value.producer() if value is not None else None
    while maker is not None and maker.op_type in _MOVING and maker.inputs[0] is not None:
        maker = maker.inputs[0].producer()
    if maker is not None and maker.op_type == "Sigmoid":
        return None
    return _SCORES.get(maker.op_type, "logits") if maker is not None else "logits"


class Measures:
    """Errors of outputs, feed by feed.

    Args:
        chosen: What is measured.
        signature: Inputs and outputs of the model.
        batch_axes: Input -> its batch axis (None: it has none); 0 for those not named.
        samples: The samples, which tell how long each feed is where a batch is padded.
    """

    def __init__(self, chosen: Sequence[OutputMeasure], signature: Signature, batch_axes: Mapping[str, int | None], samples: Samples) -> None:
        self.chosen = tuple(chosen)
        self.batch_axes = dict(batch_axes)
        self._signature = signature
        self._axes = output_axes(signature, batch_axes)
        self._samples = samples
        self._pads: Mapping[str, Any] = getattr(samples, "pad_values", {})
        self._specs = {spec.name: spec for spec in (*signature.inputs, *signature.outputs)}

    @property
    def weights(self) -> list[float]:
        """Weight of each output."""
        return [measure.weight for measure in self.chosen]

    @property
    def name(self) -> str:
        """What effects are."""
        return "+".join(sorted({measure.measure for measure in self.chosen}))

    def axis(self, output: str) -> int | None:
        """Batch axis of an output."""
        return self._axes.get(output, 0)

    def valid(self, output: str, batch: Batch) -> npt.NDArray[np.bool_] | None:
        """Which places of a sequence count, `[rows, places]`; None where all do.

        Left out are places that only fill a feed up to the longest of its batch, and those that an input called a mask leaves out.
        """
        shape = self._specs[output].shape
        if shape is None or len(shape) <= _PLACES or self.axis(output) != 0:
            return None
        place, found = shape[_PLACES], None
        for spec in self._signature.inputs:
            if spec.shape is None or len(spec.shape) != _PLACES + 1 or spec.shape[_PLACES] != place or place == "?" or not _is_mask(spec):
                continue
            found = np.asarray(batch.feed[spec.name])[: len(batch.owners)] != 0
        for name in self._pads:
            spec = self._specs[name]
            if spec.shape is None or len(spec.shape) != _PLACES + 1 or spec.shape[_PLACES] != place or place == "?":
                continue
            lengths = [self._samples[position].feeds[number][name].shape[-1] for position, number in batch.owners]
            within = np.arange(batch.feed[name].shape[-1])[None] < np.array(lengths)[:, None]
            found = within if found is None else found & within
        return found

    def errors(self, found: Mapping[str, Array], wanted: Mapping[str, Array], batch: Batch) -> tuple[Doubles, Doubles]:
        """(errors, signals), `[feeds, outputs]` each, of one batch; what was not computed anew is as it was."""
        pairs = [self._compared(measure, found.get(measure.output), wanted[measure.output], batch) for measure in self.chosen]
        return np.stack([error for error, _ in pairs], axis=1), np.stack([signal for _, signal in pairs], axis=1)

    def _compared(self, measure: OutputMeasure, found: Array | None, wanted: Array, batch: Batch) -> tuple[Doubles, Doubles]:
        rows = len(batch.owners)
        theirs = self._rows(measure.output, wanted, rows)
        ours = theirs if found is None else self._rows(measure.output, found, rows)
        valid = self.valid(measure.output, batch)
        if valid is not None and valid.shape != theirs.shape[:2]:
            valid = None
        return compare(measure, ours, theirs, valid)

    def _rows(self, output: str, array: Array, rows: int) -> Array:
        axis = self.axis(output)
        return array[None] if axis is None else np.moveaxis(array, axis, 0)[:rows]


def compare(measure: OutputMeasure, ours: Array, theirs: Array, valid: npt.NDArray[np.bool_] | None) -> tuple[Doubles, Doubles]:
    """(errors, signals) of feeds, `[rows]` each.

    Args:
        measure: What is measured.
        ours: The output, `[rows, ...]`.
        theirs: FP32's.
        valid: Places that count, `[rows, places]`.

    Example:
        >>> compare(OutputMeasure("y", "output_error"), np.float32([[1, 2]]), np.float32([[1, 4]]), None)
        (array([4.]), array([17.]))
    """
    rows = len(theirs)
    with np.errstate(over="ignore", invalid="ignore"):
        if measure.measure == "kl":
            p, q = (log_softmax(_logarithms(x, measure.scores), axis=-1) for x in (theirs, ours))
            each = np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0)
            each = each.reshape(rows, -1) if each.ndim > 1 else each[:, None]
            if valid is None or valid.shape != each.shape:
                return np.asarray(each.mean(axis=1)), np.ones(rows)
            return np.asarray(np.where(valid, each, 0).sum(axis=1) / np.maximum(valid.sum(axis=1), 1)), np.ones(rows)
        wanted, found = theirs.astype(np.float64), ours.astype(np.float64)
        counted = np.isfinite(wanted)
        if valid is not None:
            counted &= valid.reshape(*valid.shape, *[1] * (wanted.ndim - 2))
        error = np.where(counted, np.square(found - np.where(counted, wanted, 0)), 0)
        signal = np.where(counted, np.square(wanted), 0)
    return error.reshape(rows, -1).sum(axis=1), signal.reshape(rows, -1).sum(axis=1)


def _logarithms(scores: Array, kind: Scores) -> Doubles:
    wide = scores.astype(np.float64)
    return np.log(np.maximum(wide, _LEAST)) if kind == "probabilities" else wide


def _is_mask(spec: TensorSpec) -> bool:
    return "mask" in spec.name.lower() and not spec.dtype.startswith("float")
