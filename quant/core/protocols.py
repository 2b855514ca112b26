"""What each kind of plug-in owes. No base classes: a plug-in is any class with these members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from quant.core.formats import Grid, Range
from quant.core.registry import Options
from quant.core.statistics import TensorStatistics

Records = npt.NDArray[np.float64]
"""`[rows, columns]`: all that a metric needs of the samples it has seen; rows of one sample stay together."""

Direction = Literal["higher", "lower", "same"]
"""Which way is better; `same`: any move away from the baseline is worse."""


MetricExample = tuple[dict[str, Any], Sequence[Sequence[Mapping[str, npt.NDArray[Any]]]], Sequence[Any]]
"""Options, outputs of some samples, and their labels."""


class Calibrator(Protocol):
    """Turns a tensor's statistics into the range that a grid should write."""

    kind: ClassVar[str]
    Options: ClassVar[type[Options]]

    def range(self, statistics: TensorStatistics, grid: Grid) -> Range:
        """The range, finite and ordered, inside the extremes that were seen.

        Raises:
            CalibrationError: Nothing finite was seen.
        """
        ...


class Metric(Protocol):
    """A measure on predictions, in two steps: a small record for each sample, and a value over many records.

    Two steps make everything else possible: outputs are not kept, the value can be recomputed over any resample (the paired
    bootstrap), and proportions can be tested exactly.
    """

    kind: ClassVar[str]
    Options: ClassVar[type[Options]]
    direction: ClassVar[Direction]
    unit: ClassVar[str]
    """`share` (0..1, shown in percent), `correlation`, `rate`, or another word for the number."""
    proportion: ClassVar[bool]
    """Whether `value` is the mean of a first column that holds only 0 and 1 (then the exact paired test applies)."""

    @classmethod
    def example(cls) -> MetricExample:
        """Options, outputs and labels of some samples that are predicted as well as can be (by this the metric is tested)."""
        ...

    def check_label(self, label: object) -> None:
        """Accept a label, or say what is wrong with it.

        Raises:
            DataError: The label is missing or of a kind that this metric cannot use.
        """
        ...

    def record(self, outputs: Sequence[Mapping[str, npt.NDArray[Any]]], label: Any) -> Records:
        """The records of one sample, `[rows, columns]`; `outputs` has one mapping (without batch axis) for each feed.

        Raises:
            DataError: The outputs or the label do not fit (a class beyond the number of logits, say).
        """
        ...

    def value(self, records: Records) -> float:
        """The metric over `records` of many samples (rows may repeat, as in a bootstrap)."""
        ...
