"""What metrics say of the FP32 model, as a document that is read like a mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from quant.core.arguments import with_checked_arguments
from quant.core.documents import Document
from quant.core.shown import Chart, Series, Shown, Table


class _Written(Document):
    """An evaluation as it is saved."""

    subject: str
    samples: int
    metrics: Mapping[str, float]
    units: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Evaluation(Mapping[str, float], Shown):
    """Name -> value of every metric.

    Args:
        subject: What was evaluated.
        samples: On how many samples.
        metrics: Name -> value.
        units: Name -> unit.

    Example:
        >>> found = Evaluation("digits in fp32", 100, {"accuracy": 0.95}, {"accuracy": "share"})
        >>> found["accuracy"], dict(found), found == {"accuracy": 0.95}
        (0.95, {'accuracy': 0.95}, True)
    """

    subject: str
    samples: int
    metrics: Mapping[str, float]
    units: Mapping[str, str]

    def __getitem__(self, name: str) -> float:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    def as_table(self) -> Table:
        """Metric by metric."""
        rows = [(name, value, self.units.get(name)) for name, value in self.metrics.items()]
        return Table(self.subject, ("metric", "value", "unit"), rows, {"samples": self.samples})

    def as_chart(self) -> Chart:
        """Metric by metric."""
        return Chart(self.subject, "value", "", [Series("value", list(self.metrics.values()), list(self.metrics))], "bars")

    def save(self, path: Path | str) -> None:
        """Write it as JSON, whole or not at all."""
        _Written(subject=self.subject, samples=self.samples, metrics=dict(self.metrics), units=dict(self.units)).save(path)

    @classmethod
    @with_checked_arguments
    def load(cls, path: Path | str) -> Evaluation:
        """Read what `save` wrote.

        Raises:
            RunError: The file is missing, or no evaluation.
        """
        read = _Written.load(path)
        return cls(read.subject, read.samples, read.metrics, read.units)
