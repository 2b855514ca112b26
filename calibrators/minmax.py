"""Min-max: everything that was seen can be written."""

from __future__ import annotations

from calibrators import CALIBRATORS
from calibrators.histogram import require_values
from quant.core import registry
from quant.core.formats import Grid, Range
from quant.core.statistics import TensorStatistics


@CALIBRATORS.add
class MinMax:
    """The extremes themselves. Nothing is clipped; a single outlier widens every step."""

    kind = "minmax"

    class Options(registry.Options):
        """No options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def range(self, statistics: TensorStatistics, grid: Grid) -> Range:  # noqa: ARG002 - the same for every grid
        """Smallest to largest finite value.

        Raises:
            CalibrationError: Nothing finite was seen.
        """
        require_values(statistics)
        return Range(statistics.minimum, statistics.maximum)
