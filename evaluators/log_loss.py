"""How improbable the labels are to the model: `log-loss`."""

from __future__ import annotations

from typing import ClassVar

from evaluators import METRICS
from evaluators.examples import Example, classification
from evaluators.losses import Losses
from evaluators.outputs import Floats
from evaluators.weights import weighted_mean
from quant.core.protocols import Records


@METRICS.add
class LogLoss(Losses):
    """Mean of -log p(label), in nats; records are `[loss]`."""

    kind: ClassVar[str] = "log-loss"
    unit: ClassVar[str] = "nats"

    @classmethod
    def example(cls) -> Example:
        """Confident predictions of three classes."""
        return classification()

    def value(self, records: Records) -> float:
        """The mean loss."""
        return float(records[:, 0].mean())

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        return weighted_mean(records[:, 0], weights)
