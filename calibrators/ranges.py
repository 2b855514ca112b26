"""Ranges of many tensors at once."""

from __future__ import annotations

from collections.abc import Mapping

from quant.core.formats import Grid, Range
from quant.core.parallel import ordered_map
from quant.core.protocols import Calibrator
from quant.core.statistics import TensorStatistics
from quant.errors import CalibrationError


def ranges(statistics: Mapping[str, TensorStatistics], calibrator: Calibrator, grid: Grid, workers: int = 1) -> dict[str, Range]:
    """The range of every tensor, in the order of `statistics`; the same for any number of `workers`.

    Args:
        statistics: Tensor name -> what was seen of it.
        calibrator: How ranges are chosen.
        grid: The grid that will write the values.
        workers: Threads to use, at least 1.

    Raises:
        CalibrationError: A tensor's range cannot be had; the error says which tensor.

    Example:
        >>> import numpy as np
        >>> from calibrators import CALIBRATORS
        >>> from quant.core.formats import UINT8
        >>> ranges({"x": TensorStatistics.of(np.float32([-1, 3]))}, CALIBRATORS.make("minmax"), UINT8)
        {'x': Range(low=-1.0, high=3.0)}
    """

    def one(item: tuple[str, TensorStatistics]) -> tuple[str, Range]:
        name, seen = item
        try:
            return name, calibrator.range(seen, grid)
        except CalibrationError as error:
            raise error.at(name) from error

    return dict(ordered_map(one, statistics.items(), workers=workers))
