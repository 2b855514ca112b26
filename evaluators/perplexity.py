"""Perplexity: how many tokens a language model hesitates between, on average, when it says the next one."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evaluators import METRICS
from evaluators.examples import Example, classification
from evaluators.losses import Losses
from evaluators.outputs import Floats, Outputs
from evaluators.weights import weighted_sum
from quant.core.protocols import Records


@METRICS.add
class Perplexity(Losses):
    """exp of the mean of -log p(next token), over all tokens of all samples; records are `[nats, tokens]`, one row a sample.

    A sample is a window of text: logits `[steps, vocabulary]`, and the next token of each step as the label, which the processor `tokens`
    makes of the text itself. A longer window has more tokens, and so more weight.
    """

    kind: ClassVar[str] = "perplexity"
    unit: ClassVar[str] = "perplexity"

    @classmethod
    def example(cls) -> Example:
        """Windows of two tokens, foretold with confidence."""
        options, outputs, labels = classification()
        return options, [({"logits": np.stack([feed["logits"]] * 2)},) for (feed,) in outputs], [np.full(2, label) for label in labels]

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row: the sum of -log p over the sample's tokens, and their number."""
        losses = super().record(outputs, label)[:, 0]
        return np.array([[losses.sum(), len(losses)]], np.float64)

    def value(self, records: Records) -> float:
        """The perplexity; infinite where its logarithm is beyond 709 nats."""
        with np.errstate(over="ignore"):
            return float(np.exp(records[:, 0].sum() / records[:, 1].sum()))

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        nats, tokens = (weighted_sum(column, weights) for column in records.T)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(nats / tokens))
