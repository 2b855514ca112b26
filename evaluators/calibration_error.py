"""How far confidence is from accuracy: `calibration-error`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from evaluators import METRICS
from evaluators.examples import Example
from evaluators.outputs import ClassOptions, Floats, Outputs, check_class, class_rows, log_softmax
from evaluators.weights import run_sums, runs_of
from quant.core.protocols import Direction, Records
from quant.errors import DataError


class CalibrationErrorOptions(ClassOptions):
    """Options of `calibration-error`."""

    of: Literal["logits", "probabilities"] = Field("logits", description="what the output holds")
    bins: int = Field(15, ge=2, description="bins, each of about as many rows")


@METRICS.add
class CalibrationError:
    """Expected calibration error of the predicted class over bins of equal mass; records are `[confidence, correct]`.

    Rows are sorted by confidence and cut into bins of about as many rows each (equal confidences share a bin); the error is the mean of
    |accuracy - confidence| over bins, weighted by rows. Bins of equal mass are less biased than bins of equal width, most of which
    are empty for a modern network (Nixon et al. 2019, Measuring Calibration in Deep Learning; Roelofs et al. 2022, AISTATS).
    """

    kind: ClassVar[str] = "calibration-error"
    direction: ClassVar[Direction] = "lower"
    unit: ClassVar[str] = "share"
    proportion: ClassVar[bool] = False
    Options: ClassVar[type[CalibrationErrorOptions]] = CalibrationErrorOptions

    def __init__(self, options: CalibrationErrorOptions) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """Confident predictions of three classes, all of them right."""
        labels = [i % 3 for i in range(18)]
        return {}, [({"logits": np.asarray(40 * np.eye(3)[label], dtype=np.float32)},) for label in labels], labels

    def check_label(self, label: object) -> None:
        """Accept a class, or an array of them."""
        check_class(label, ignore=self.options.ignore)

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row a label: the largest probability, and whether its class is the label."""
        scores, labels = class_rows(outputs, label, self.options)
        if not np.issubdtype(scores.dtype, np.floating):
            raise DataError(f"output of type {scores.dtype} has no probabilities", hint="name the output with logits or probabilities")
        values = scores.astype(np.float64)
        if self.options.of == "logits":
            values = np.concatenate([np.zeros_like(values), values], axis=1) if values.shape[1] == 1 else values
            shares = np.exp(log_softmax(values))
        else:
            if values.size and (np.nanmin(values) < 0 or np.nanmax(values) > 1 + 1e-3):
                raise DataError(f"{np.nanmin(values):g} to {np.nanmax(values):g} are no probabilities", hint="set of: logits")
            shares = np.concatenate([1 - values, values], axis=1) if values.shape[1] == 1 else values
        right = np.where(np.isnan(shares).any(axis=1), np.nan, (shares.argmax(axis=1) == labels).astype(np.float64))
        return np.stack([shares.max(axis=1), right], axis=1)

    def value(self, records: Records) -> float:
        """The error, 0..1."""
        return float(self.weighted(records, np.ones((1, len(records))))[0])

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        order, starts = runs_of(records[:, 0])
        weights = weights[:, order]
        mass = run_sums(weights, starts)
        # Of each run of equal confidences: how much more often it is right than it says, times its mass.
        excess = run_sums(weights * (records[order, 1] - records[order, 0]), starts)
        total = mass.sum(axis=1, keepdims=True)
        middle = np.cumsum(mass, axis=1) - mass / 2
        bins = np.minimum((middle * self.options.bins / total).astype(np.int64), self.options.bins - 1)
        sums = np.zeros((len(weights), self.options.bins))
        np.add.at(sums, (np.arange(len(weights))[:, None], bins), excess)
        return np.asarray(np.abs(sums).sum(axis=1) / total[:, 0])
