"""Accuracy: the share of rows whose predicted class is the label."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evaluators import METRICS
from evaluators.examples import Example, classification
from evaluators.outputs import ClassOptions, Floats, Outputs, check_class, class_rows, predicted
from evaluators.weights import weighted_mean
from quant.core.protocols import Direction, Records


@METRICS.add
class Accuracy:
    """The share of rows whose highest score is the label's; records are `[correct]`.

    A row is a sample, or a step of a sequence with a label for each step. One float score a row is compared with
    `threshold`; integer outputs are taken as predicted classes.
    """

    kind: ClassVar[str] = "accuracy"
    direction: ClassVar[Direction] = "higher"
    unit: ClassVar[str] = "share"
    proportion: ClassVar[bool] = True
    Options: ClassVar[type[ClassOptions]] = ClassOptions

    def __init__(self, options: ClassOptions) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """Perfect predictions of three classes."""
        return classification()

    def check_label(self, label: object) -> None:
        """Accept a class, or an array of them."""
        check_class(label, ignore=self.options.ignore)

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row a label: 1 when right, else 0."""
        scores, labels = class_rows(outputs, label, self.options)
        found = predicted(scores, self.options.threshold)
        return np.where(np.isnan(found), np.nan, (found == labels).astype(np.float64))[:, None]

    def value(self, records: Records) -> float:
        """The share that is right."""
        return float(records[:, 0].mean())

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        return weighted_mean(records[:, 0], weights)
