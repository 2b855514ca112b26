"""Top-k accuracy: the share of rows whose label is among the k highest scores."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from evaluators import METRICS
from evaluators.examples import Example, classification
from evaluators.outputs import ClassOptions, Floats, Outputs, check_class, class_rows
from evaluators.weights import weighted_mean
from quant.core.protocols import Direction, Records
from quant.errors import DataError


class TopKOptions(ClassOptions):
    """Options of `top-k`."""

    k: int = Field(5, ge=1, description="how many of the highest scores count")


@METRICS.add
class TopK:
    """The share of rows whose label is among the `k` highest scores (of equal scores the lower class comes first)."""

    kind: ClassVar[str] = "top-k"
    direction: ClassVar[Direction] = "higher"
    unit: ClassVar[str] = "share"
    proportion: ClassVar[bool] = True
    Options: ClassVar[type[TopKOptions]] = TopKOptions

    def __init__(self, options: TopKOptions) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """Perfect predictions of three classes, with k = 1 so that a wrong one counts."""
        _, outputs, labels = classification()
        return {"k": 1}, outputs, labels

    def check_label(self, label: object) -> None:
        """Accept a class, or an array of them."""
        check_class(label, ignore=self.options.ignore)

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row a label: 1 when it is among the k highest, else 0."""
        scores, labels = class_rows(outputs, label, self.options)
        classes = scores.shape[1]
        if self.options.k > classes:
            raise DataError(
                f"k is {self.options.k} but the output has {classes} score(s) a row", hint="set a smaller k, or name the output with the class scores"
            )
        own = np.take_along_axis(scores, labels[:, None], axis=1)
        before = (scores > own) | ((scores == own) & (np.arange(classes) < labels[:, None]))
        hit = (before.sum(axis=1) < self.options.k).astype(np.float64)
        return np.where(np.isnan(scores).any(axis=1), np.nan, hit)[:, None]

    def value(self, records: Records) -> float:
        """The share of hits."""
        return float(records[:, 0].mean())

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        return weighted_mean(records[:, 0], weights)
