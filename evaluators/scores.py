"""What metrics of unlabelled scores share: which score a sample has."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from evaluators.outputs import Apply, OutputOptions, Outputs, column_of, pick
from quant.core.protocols import Records


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
