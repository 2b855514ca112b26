"""F1: the harmonic mean of precision and recall, over classes or over all decisions."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from evaluators import METRICS
from evaluators.examples import Example, classification
from evaluators.outputs import ClassOptions, Floats, Outputs, check_class, class_rows, predicted
from evaluators.weights import weighted_counts
from quant.core.protocols import Direction, Records


class F1Options(ClassOptions):
    """Options of `f1`."""

    average: Literal["macro", "micro", "weighted", "binary"] = Field(
        "macro", description="mean over classes, over all decisions, over classes by their frequency, or class 1 alone"
    )


@METRICS.add
class F1:
    """F1 of predicted classes; records are `[predicted, label]`.

    A class counts when it is predicted or is a label; a ratio 0/0 is 0, as scikit-learn has it.
    """

    kind: ClassVar[str] = "f1"
    direction: ClassVar[Direction] = "higher"
    unit: ClassVar[str] = "share"
    proportion: ClassVar[bool] = False
    Options: ClassVar[type[F1Options]] = F1Options

    def __init__(self, options: F1Options) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """Perfect predictions of three classes."""
        return classification()

    def check_label(self, label: object) -> None:
        """Accept a class, or an array of them."""
        check_class(label, ignore=self.options.ignore)

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row a label."""
        scores, labels = class_rows(outputs, label, self.options)
        return np.stack([predicted(scores, self.options.threshold), labels.astype(np.float64)], axis=1)

    def value(self, records: Records) -> float:
        """F1 over all rows."""
        return float(self.weighted(records, np.ones((1, len(records))))[0])

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        classes, flat = np.unique(records, return_inverse=True)
        found, label = flat.reshape(records.shape).T
        # Hits are counted by label, misses under a code of their own that is then dropped.
        hits = weighted_counts(np.where(found == label, label, len(classes)), weights, len(classes) + 1)[:, :-1]
        return self._average(classes, hits, weighted_counts(found, weights, len(classes)), weighted_counts(label, weights, len(classes)))

    def _average(self, classes: Floats, hits: Floats, predictions: Floats, labels: Floats) -> Floats:
        if self.options.average == "micro":
            hits, predictions, labels = (v.sum(axis=1, keepdims=True) for v in (hits, predictions, labels))
        elif self.options.average == "binary":
            hits, predictions, labels = (np.where(classes == 1, v, 0).sum(axis=1, keepdims=True) for v in (hits, predictions, labels))
        total = predictions + labels
        f1 = 2 * hits / np.where(total > 0, total, 1)
        share = labels if self.options.average == "weighted" else (total > 0).astype(np.float64)
        return np.asarray((f1 * share).sum(axis=1) / np.maximum(share.sum(axis=1), np.finfo(np.float64).tiny))
