"""`bias-correction`: what rounding adds to the mean of a product is taken back in the row that is added to it.

The scheme itself corrects the biases of convolutions and of products of two matrices (`correct_bias`). Here are the products of
transformers: rows of three axes or more, times a matrix, plus a constant row. What cutting and rounding adds to the mean of what they multiply is
not taken back: it comes from few rows (delimiters, most often), and all others would pay for it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from threadpoolctl import threadpool_limits

from quant.core.formats import slice_extremes
from quant.core.registry import Options as PluginOptions
from quant.graph.layers import Layer
from quant.graph.model import add_initializer
from quant.graph.names import Names
from quant.graph.scaling import rows_in
from quant.transforms import TRANSFORMS, Change, Seen, Setting
from quant.transforms.products.inputs import products
from quant.transforms.products.rows import added_row


@TRANSFORMS.add
class BiasCorrection:
    """Takes back the mean error of products that a row is added to."""

    kind: ClassVar[str] = "bias-correction"
    bases: ClassVar[frozenset[str]] = frozenset({"int8"})
    keeps_function: ClassVar[bool] = False
    keeps_tensors: ClassVar[bool] = True

    class Options(PluginOptions):
        """Options of `bias-correction`: none."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tensors(self, model: ir.Model, setting: Setting) -> frozenset[str]:
        """None: it looks at what layers multiply."""
        del model, setting
        return frozenset()

    def apply(self, model: ir.Model, setting: Setting, seen: Seen) -> Change:
        """Correct every row that is added to a product of the plan."""
        rows = {layer.name: found for layer in products(model, setting) if (found := added_row(layer)) is not None}
        names = Names(model.graph)
        done: dict[str, str] = {}
        with threadpool_limits(1):  # sums over several threads depend on their number
            for alike, values in seen.inputs([layer for layer in products(model, setting) if layer.name in rows]):
                mean = np.mean(values[0], axis=0, dtype=np.float64)
                for layer in alike:
                    node, position, row = rows[layer.name]
                    shift = mean @ _rounding(layer, setting)
                    corrected = (row.astype(np.float64) - shift).astype(np.float32)
                    if not np.array_equal(corrected, row):
                        node.replace_input_with(position, add_initializer(model.graph, names.new(f"{layer.name}_corrected"), corrected))
                        done[layer.name] = f"{np.abs(shift).max():.1e} taken back, at most"
        return Change(done)


def _rounding(layer: Layer, setting: Setting) -> npt.NDArray[np.float64]:
    """What rounding adds to the weight of `layer`, `[in, out]`."""
    weights, grid = rows_in(layer), setting.dialect.weights
    axis = 1 if setting.per_channel else None
    params = grid.params(*slice_extremes(weights, axis))
    return grid.dequantize(grid.quantize(weights, params, axis), params, axis).astype(np.float64) - weights
