"""What one gate found, as a report has it."""

from __future__ import annotations

from typing import Literal

from quant.core.documents import Document, Verdict


class GateRow(Document):
    """One gate's verdict on a candidate: which metric, and what was found.

    Args:
        metric: Name of the metric.
        direction: Which way is better: `higher`, `lower`, or as close to the baseline as can be (`same`).
        unit: Unit of its value; `share` and `rate` are shown in percent.
        verdict: What the gate found.
    """

    metric: str
    direction: Literal["higher", "lower", "same"]
    unit: str
    verdict: Verdict

    @property
    def title(self) -> str:
        """The metric, and the part of the samples where it is not all."""
        return f"{self.metric} of {self.verdict.slice}" if self.verdict.slice else self.metric
