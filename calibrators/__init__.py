"""Calibrators: ways to turn a tensor's streamed statistics into the range that a grid should write, one file each.

Every calibrator answers with a range inside the extremes that were seen. A *symmetric* grid has one threshold t; its range
is `[-t, t]` cut to those extremes, from which `Grid.params` finds t again as the larger of the two magnitudes.
"""

from __future__ import annotations

from quant.core.protocols import Calibrator
from quant.core.registry import Registry

CALIBRATORS: Registry[Calibrator] = Registry("calibrator", "calibrators")
"""All calibrators by `kind`."""
