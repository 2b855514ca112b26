"""What metrics of unlabelled scores share: which score a sample has."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from evaluators.examples import Example, numbers
from evaluators.outputs import Apply, OutputOptions, Outputs, column_of, pick
from quant.core.protocols import Direction, Records


class ScoreOptions(OutputOptions):
    """Which column is the score."""

    column: int | None = Field(None, description="column of the score; of one or two columns the last when not given")
    apply: Apply = Field("none", description="what makes a score of the columns")


def score_record(outputs: Outputs, options: ScoreOptions) -> Records:
    """The record of one sample, `[1, 1]`: its score; the mean where there are several rows (one a feed, say)."""
    array = pick(outputs, options.output)
    scores = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    column = options.column if scores.shape[1] != 2 else 1 if options.column is None else options.column  # noqa: PLR2004 - two classes
    return np.array([[float(np.mean(column_of(scores, column, options.apply)))]])


class Scores:
    """Records the score of each sample, `[score]`; any move of what is made of them is a drop, and no labels are needed."""

    direction: ClassVar[Direction] = "same"
    unit: ClassVar[str] = "score"
    proportion: ClassVar[bool] = False

    @classmethod
    def example(cls) -> Example:
        """Some scores."""
        return numbers()

    def __init__(self, options: ScoreOptions) -> None:
        self._asked = options

    def check_label(self, label: object) -> None:
        """Accept anything: no label is read."""

    def record(self, outputs: Outputs, label: Any) -> Records:  # noqa: ARG002 - the protocol's signature
        """One row: the score."""
        return score_record(outputs, self._asked)
