"""The mean of a score, which must not move: a credit score's average is a price."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from evaluators import METRICS
from evaluators.examples import Example, numbers
from evaluators.outputs import Apply, Floats, OutputOptions, Outputs, column_of, pick
from evaluators.weights import weighted_mean
from quant.core.protocols import Direction, Records


class MeanScoreOptions(OutputOptions):
    """Options of `mean-score`."""

    column: int | None = Field(None, description="column of the score; of one or two columns the last when not given")
    apply: Apply = Field("none", description="what makes a score of the columns")


@METRICS.add
class MeanScore:
    """The mean score over samples; any move away from the baseline's is a drop. Needs no labels; records are `[score]`.

    With several rows a sample (one a feed, say), their mean is the sample's score.
    """

    kind: ClassVar[str] = "mean-score"
    direction: ClassVar[Direction] = "same"
    unit: ClassVar[str] = "score"
    proportion: ClassVar[bool] = False
    Options: ClassVar[type[MeanScoreOptions]] = MeanScoreOptions

    def __init__(self, options: MeanScoreOptions) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """Some scores."""
        return numbers()

    def check_label(self, label: object) -> None:
        """Accept anything: no label is read."""

    def record(self, outputs: Outputs, label: Any) -> Records:  # noqa: ARG002 - the protocol's signature
        """One row: the score."""
        array = pick(outputs, self.options.output)
        scores = array.reshape(-1, array.shape[-1] if array.ndim else 1)
        column = self.options.column if scores.shape[1] != 2 else 1 if self.options.column is None else self.options.column  # noqa: PLR2004 - two classes
        return np.array([[float(np.mean(column_of(scores, column, self.options.apply)))]])

    def value(self, records: Records) -> float:
        """The mean."""
        return float(records[:, 0].mean())

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        return weighted_mean(records[:, 0], weights)
