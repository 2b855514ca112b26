"""Errors of a predicted number: `mae` (mean absolute) and `rmse` (root mean square), in the label's unit."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evaluators import METRICS
from evaluators.examples import Example, numbers
from evaluators.outputs import Floats, OutputOptions, Outputs, check_number, pick
from evaluators.weights import weighted_mean
from quant.core.protocols import Direction, Records
from quant.errors import DataError


class _Regression:
    """What both have: records `[mean error of the sample's numbers]`, made from the differences to the label."""

    direction: ClassVar[Direction] = "lower"
    unit: ClassVar[str] = "label's unit"
    proportion: ClassVar[bool] = False
    Options: ClassVar[type[OutputOptions]] = OutputOptions

    def __init__(self, options: OutputOptions) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """Scores that equal their labels."""
        return numbers()

    def check_label(self, label: object) -> None:
        """Accept a finite number, or an array of them."""
        check_number(label)

    def differences(self, outputs: Outputs, label: Any) -> Floats:
        """Output less label, flat."""
        array, wanted = pick(outputs, self.options.output), np.asarray(label)
        if array.size != wanted.size:
            raise DataError(
                f"output of shape {list(array.shape)} against a label of shape {list(wanted.shape)}", hint="name the output with the predicted number"
            )
        return array.reshape(-1).astype(np.float64) - wanted.reshape(-1).astype(np.float64)


@METRICS.add
class MeanAbsoluteError(_Regression):
    """Mean absolute error over samples."""

    kind: ClassVar[str] = "mae"

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row: the sample's mean absolute error."""
        return np.array([[np.abs(self.differences(outputs, label)).mean()]])

    def value(self, records: Records) -> float:
        """The mean."""
        return float(records[:, 0].mean())

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        return weighted_mean(records[:, 0], weights)


@METRICS.add
class RootMeanSquareError(_Regression):
    """Root of the mean square error over samples."""

    kind: ClassVar[str] = "rmse"

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row: the sample's mean square error."""
        return np.array([[np.square(self.differences(outputs, label)).mean()]])

    def value(self, records: Records) -> float:
        """The root of the mean."""
        return float(np.sqrt(records[:, 0].mean()))

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        return np.asarray(np.sqrt(weighted_mean(records[:, 0], weights)))
