"""When what two machines saw is the same but for rounding."""

from __future__ import annotations

import math

from quant.core.statistics import RELATIVE_BIN_WIDTH, TensorStatistics
from quant.core.table import CalibrationTable

TERMS, DEPTH = 4096, 100
ROUNDING = 2.0**-24 * math.sqrt(TERMS) * DEPTH
"""Sums in another order differ, as a random walk, by 2⁻²⁴ of FP32 times the root of their terms, and once more in each layer that follows:
of 4096 terms, through 100 layers, by 3.8e-4 of the largest value."""


def different_tensors(fresh: CalibrationTable, stored: CalibrationTable, *, tolerance: float) -> dict[str, str]:
    """Tensor -> what differs in `stored`.

    Args:
        fresh: What was seen now.
        stored: What is said to have been seen.
        tolerance: Share of a tensor's largest magnitude by which its extremes may differ; 0: everything must be the same, histograms too.
    """
    found = {name: "is missing from the calibration table" for name in fresh.statistics if name not in stored.statistics}
    found |= {name: "is in the calibration table, and nothing is to know of it" for name in stored.statistics if name not in fresh.statistics}
    for name in fresh.statistics:
        if name in stored.statistics and (what := _different(fresh.statistics[name], stored.statistics[name], tolerance)):
            found[name] = what
    return found


def _different(fresh: TensorStatistics, stored: TensorStatistics, tolerance: float) -> str:
    if fresh.count != stored.count:
        return f"{stored.count} values were seen, {fresh.count} are there"
    room = tolerance * max(abs(fresh.minimum), abs(fresh.maximum))
    if abs(fresh.minimum - stored.minimum) > room or abs(fresh.maximum - stored.maximum) > room:
        return f"values from {stored.minimum:.6g} to {stored.maximum:.6g} were seen, they go from {fresh.minimum:.6g} to {fresh.maximum:.6g}"
    if abs(fresh.rms - stored.rms) > (room + RELATIVE_BIN_WIDTH * fresh.rms if tolerance else 0.0):
        return f"the root mean square was {stored.rms:.6g}, it is {fresh.rms:.6g}"
    if tolerance == 0 and not (fresh.codes.tolist() == stored.codes.tolist() and fresh.counts.tolist() == stored.counts.tolist()):
        return "the histogram is another one"
    return ""
