"""Correlations between a score and a number: Pearson's and, on ranks, Spearman's."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from evaluators import METRICS
from evaluators.examples import Example, numbers
from evaluators.outputs import Apply, Array, Floats, OutputOptions, Outputs, check_number, column_of, pick, rows_of
from evaluators.weights import weighted_correlation, weighted_ranks
from quant.core.protocols import Direction, Records
from quant.errors import DataError


class CorrelationOptions(OutputOptions):
    """Options of `pearson` and `spearman`."""

    pair: bool = Field(default=False, description="the score is the cosine of the embeddings of a sample's two feeds")
    column: int | None = Field(None, description="column of the score, when the output has several")
    apply: Apply = "none"


class _Correlation:
    """What both have: the records `[score, label]`, and a value that is undefined when one side is constant."""

    kind: ClassVar[str]
    direction: ClassVar[Direction] = "higher"
    unit: ClassVar[str] = "correlation"
    proportion: ClassVar[bool] = False
    Options: ClassVar[type[CorrelationOptions]] = CorrelationOptions

    def __init__(self, options: CorrelationOptions) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """Scores that equal their labels."""
        return numbers()

    def check_label(self, label: object) -> None:
        """Accept a finite number, or an array of them."""
        check_number(label)

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row a label."""
        if self.options.pair:
            return np.array([[_cosine(outputs, self.options.output), float(label)]])
        scores, labels = rows_of(pick(outputs, self.options.output), label)
        return np.stack([column_of(scores, self.options.column, self.options.apply), labels.astype(np.float64)], axis=1)

    def value(self, records: Records) -> float:
        """The correlation.

        Raises:
            DataError: The scores, or the labels, are all alike.
        """
        found = float(self.weighted(records, np.ones((1, len(records))))[0]) if len(records) else np.nan
        if np.isnan(found) and np.isfinite(records).all():
            raise DataError(f"a correlation needs scores and labels that vary; here are {len(records)} of which one side is constant")
        return found

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights; NaN where it is undefined."""
        return weighted_correlation(records[:, 0], records[:, 1], weights)


@METRICS.add
class Pearson(_Correlation):
    """Pearson's correlation of score and label."""

    kind: ClassVar[str] = "pearson"


@METRICS.add
class Spearman(_Correlation):
    """Spearman's rank correlation of score and label, ties having their mean rank."""

    kind: ClassVar[str] = "spearman"

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights; NaN where it is undefined."""
        scores, labels = (weighted_ranks(column, weights) for column in records.T)
        return weighted_correlation(scores, labels, weights)


def _cosine(outputs: Outputs, name: str | None) -> float:
    if len(outputs) != 2:  # noqa: PLR2004 - a pair
        raise DataError(f"a pair has two feeds, this sample has {len(outputs)}", hint="set pair: false, or let the data's processor make pairs")
    first, second = (_flat(pick([feed], name)) for feed in outputs)
    if first.shape != second.shape:
        raise DataError(f"the embeddings of a pair have {first.size} and {second.size} numbers", hint="name the pooled output, or set model.pooling")
    # No BLAS: it may add up in another order when it has other threads.
    scale = math.sqrt(float(np.sum(first**2))) * math.sqrt(float(np.sum(second**2)))
    return float(np.sum(first * second)) / scale if scale > 0 else 0.0


def _flat(array: Array) -> Floats:
    return array.reshape(-1).astype(np.float64)
