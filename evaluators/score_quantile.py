"""A quantile of a score, which must not move: a cut-off is set by the tail, not by the mean."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from evaluators import METRICS
from evaluators.outputs import Floats
from evaluators.scores import ScoreOptions, Scores
from quant.core.protocols import Records


class ScoreQuantileOptions(ScoreOptions):
    """Options of `score-quantile`."""

    quantile: float = Field(0.99, gt=0, lt=1, description="share of the samples whose score is at most the value")


@METRICS.add
class ScoreQuantile(Scores):
    """A quantile of the score over samples; any move away from the baseline's is a drop. Needs no labels; records are `[score]`.

    It is the smallest score that at least `quantile` of the samples do not exceed (definition 1 of Hyndman and Fan 1996, The American
    Statistician 50:361), so that it is always the score of a sample.
    """

    kind: ClassVar[str] = "score-quantile"
    Options: ClassVar[type[ScoreQuantileOptions]] = ScoreQuantileOptions

    def __init__(self, options: ScoreQuantileOptions) -> None:
        super().__init__(options)
        self.options = options

    def value(self, records: Records) -> float:
        """The quantile."""
        return float(self.weighted(records, np.ones((1, len(records))))[0])

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        order = np.argsort(records[:, 0], kind="stable")
        below = np.cumsum(weights[:, order], axis=1)
        # A rounding step is let go, so that the 9th of 10 is the 0.9 quantile.
        place = (below >= self.options.quantile * below[:, -1:] * (1 - 1e-12)).argmax(axis=1)
        return np.asarray(records[order, 0][place])
