"""`range-search`: ranges of activations chosen by the error of the products that read them.

A calibrator looks at a tensor alone, and takes an error here for one there. What counts is what layers make of it: a channel
that meets large weights wants fine steps, a rare large value that carries the sentence must not be cut. So for every tensor that layers
multiply by constant matrices, ranges that end at shares of its extremes are tried on rows of calibration data (of other
samples than the extremes), and the one with the least squared error of the products is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import ClassVar

import numpy as np
import onnx_ir as ir
from pydantic import Field
from threadpoolctl import threadpool_limits

from quant.core.formats import Range
from quant.core.parallel import ordered_map
from quant.core.registry import Options as PluginOptions
from quant.graph.layers import Layer
from quant.graph.planning import planned
from quant.graph.scaling import by_tensor, rows_in
from quant.transforms import TRANSFORMS, Change, Rows, Seen, Setting
from quant.transforms.products.rounded import Product


@TRANSFORMS.add
class RangeSearch:
    """Chooses the ranges of what layers multiply by the error of what they give."""

    kind: ClassVar[str] = "range-search"
    bases: ClassVar[frozenset[str]] = frozenset({"int8"})
    keeps_function: ClassVar[bool] = True
    keeps_tensors: ClassVar[bool] = True

    class Options(PluginOptions):
        """Options of `range-search`."""

        shares: tuple[float, ...] = Field((1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5), min_length=1)
        """Shares of the extremes at which a range may end."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tensors(self, model: ir.Model, setting: Setting) -> frozenset[str]:
        """What layers of the plan multiply by a constant matrix."""
        return frozenset(by_tensor(planned(model, setting.plan)))

    def apply(self, model: ir.Model, setting: Setting, seen: Seen) -> Change:
        """Choose a range for every such tensor."""
        groups = by_tensor(planned(model, setting.plan))
        with threadpool_limits(1):  # sums over several threads depend on their number
            found = dict(zip(groups, ordered_map(lambda name: self._search(seen.rows[name], groups[name], setting), groups), strict=True))
        done = {
            layer.name: f"reads {name!r} cut to {low:.0%} and {high:.0%} of its extremes"
            for name, (low, high) in found.items()
            for layer in groups[name]
            if min(low, high) < 1
        }
        ranges = {
            name: Range(float(seen.rows[name].whole.low.min()) * low, float(seen.rows[name].whole.high.max()) * high) for name, (low, high) in found.items()
        }
        return Change(done, {name: chosen for name, chosen in ranges.items() if chosen.low < chosen.high})

    def _search(self, rows: Rows, layers: Sequence[Layer], setting: Setting) -> tuple[float, float]:
        """The shares of the least and of the largest value at which the range ends best."""
        weights = np.concatenate([rows_in(layer) for layer in layers], axis=1)
        rounded = Product(setting, rows.values, weights, rows.values @ weights)
        low, high = float(rows.guide.low.min()), float(rows.guide.high.max())
        one_sided = setting.dialect.activations.symmetric or low >= 0 or high <= 0
        pairs = [(share, share) for share in self.options.shares] if one_sided else list(product(self.options.shares, repeat=2))
        errors = [(rounded.error(low * below, high * above), -below, -above) for below, above in pairs]
        _, below, above = min(errors)
        return -below, -above
