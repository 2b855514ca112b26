"""Area under the ROC curve: the chance that a positive has a higher score than a negative."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from evaluators import METRICS
from evaluators.examples import Example
from evaluators.outputs import Apply, Floats, OutputOptions, Outputs, check_binary, column_of, pick, rows_of
from evaluators.weights import run_sums, runs_of
from quant.core.protocols import Direction, Records
from quant.errors import DataError


class AucOptions(OutputOptions):
    """Options of `auc`."""

    column: int | None = Field(None, description="column of the positive class; of one or two columns the last when not given")
    apply: Apply = Field("none", description="what makes a score of the columns; it matters only with more than two")


@METRICS.add
class Auc:
    """Binary ROC AUC by ranks, ties counting half; records are `[score, label]`.

    The score is the only column, the second less the first of two (which ranks logits and probabilities alike), or `column`.
    """

    kind: ClassVar[str] = "auc"
    direction: ClassVar[Direction] = "higher"
    unit: ClassVar[str] = "share"
    proportion: ClassVar[bool] = False
    Options: ClassVar[type[AucOptions]] = AucOptions

    def __init__(self, options: AucOptions) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """Scores that separate the two classes."""
        labels = [0, 1] * 10
        return {}, [({"score": np.array([label + 0.01 * i], dtype=np.float32)},) for i, label in enumerate(labels)], labels

    def check_label(self, label: object) -> None:
        """Accept 0, 1, or an array of them."""
        check_binary(label)

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row a label."""
        scores, labels = rows_of(pick(outputs, self.options.output), label)
        return np.stack([column_of(scores, self.options.column, self.options.apply), labels.astype(np.float64)], axis=1)

    def value(self, records: Records) -> float:
        """The area.

        Raises:
            DataError: All labels are alike.
        """
        found = float(self.weighted(records, np.ones((1, len(records))))[0])
        if np.isnan(found):
            raise DataError(f"AUC needs both classes; all {len(records)} labels are {records[0, 1]:g}" if len(records) else "AUC of no records")
        return found

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights; NaN where one class has no weight."""
        order, starts = runs_of(records[:, 0])
        weights = weights[:, order]
        positives = run_sums(weights * (records[order, 1] == 1), starts)
        negatives = run_sums(weights * (records[order, 1] != 1), starts)
        # Each positive wins against the negatives with a lower score, and half against those with its own.
        wins = (positives * (np.cumsum(negatives, axis=1) - negatives / 2)).sum(axis=1)
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        return np.where(pairs > 0, wins / np.where(pairs > 0, pairs, 1), np.nan)
