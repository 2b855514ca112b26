"""The mean of a score, which must not move: a credit score's average is a price."""

from __future__ import annotations

from typing import Any, ClassVar

from evaluators import METRICS
from evaluators.examples import Example, numbers
from evaluators.outputs import Floats, Outputs
from evaluators.scores import ScoreOptions, score_record
from evaluators.weights import weighted_mean
from quant.core.protocols import Direction, Records


@METRICS.add
class MeanScore:
    """The mean score over samples; any move away from the baseline's is a drop. Needs no labels; records are `[score]`.

    With several rows a sample (one a feed, say), their mean is the sample's score.
    """

    kind: ClassVar[str] = "mean-score"
    direction: ClassVar[Direction] = "same"
    unit: ClassVar[str] = "score"
    proportion: ClassVar[bool] = False
    Options: ClassVar[type[ScoreOptions]] = ScoreOptions

    def __init__(self, options: ScoreOptions) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """Some scores."""
        return numbers()

    def check_label(self, label: object) -> None:
        """Accept anything: no label is read."""

    def record(self, outputs: Outputs, label: Any) -> Records:  # noqa: ARG002 - the protocol's signature
        """One row: the score."""
        return score_record(outputs, self.options)

    def value(self, records: Records) -> float:
        """The mean."""
        return float(records[:, 0].mean())

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        return weighted_mean(records[:, 0], weights)
