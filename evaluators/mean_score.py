"""The mean of a score, which must not move: a credit score's average is a price."""

from __future__ import annotations

from typing import ClassVar

from evaluators import METRICS
from evaluators.outputs import Floats
from evaluators.scores import ScoreOptions, Scores
from evaluators.weights import weighted_mean
from quant.core.protocols import Records


@METRICS.add
class MeanScore(Scores):
    """The mean score over samples; any move away from the baseline's is a drop. Needs no labels; records are `[score]`.

    With several rows a sample (one a feed, say), their mean is the sample's score.
    """

    kind: ClassVar[str] = "mean-score"
    Options: ClassVar[type[ScoreOptions]] = ScoreOptions

    def value(self, records: Records) -> float:
        """The mean."""
        return float(records[:, 0].mean())

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        return weighted_mean(records[:, 0], weights)
