"""`adaround`: each weight goes to the code below it or above it, whichever keeps what its layer gives.

The nearest code is best for a weight alone. Outputs add up many weights, whose errors may make up for one another on the inputs
that occur (Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization"). The cost of all choices of a layer
together is a quadratic form in the second moments of its inputs, as these are when they are quantized. Instead of relaxing the
choices and learning them, as that paper does, they are made one after the other and gone over again (`quant.core.rounding.descent`), which needs no
learning rate, no draw and less time.

The result is written as float weights that lie on the grid, the largest of each channel where it was, so that rounding to the
nearest code finds these codes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from pydantic import Field
from threadpoolctl import threadpool_limits

from quant.core.formats import slice_extremes
from quant.core.parallel import ordered_map
from quant.core.registry import Options as PluginOptions
from quant.core.rounding.descent import round_up_or_down, rounding_cost
from quant.graph.layers import Layer
from quant.graph.names import Names
from quant.graph.patches import matrices, write_matrices
from quant.transforms import TRANSFORMS, Change, Seen, Setting
from quant.transforms.products.inputs import Doubles, Floats, damped, moments, products, quantized

_TINY = 1e-300


@TRANSFORMS.add
class AdaRound:
    """Rounds the weights of a layer together, up or down."""

    kind: ClassVar[str] = "adaround"
    bases: ClassVar[frozenset[str]] = frozenset({"int8", "fp8"})
    keeps_function: ClassVar[bool] = False
    keeps_tensors: ClassVar[bool] = True

    class Options(PluginOptions):
        """Options of `adaround`."""

        damping: float = Field(0.01, gt=0)
        """Share of the mean square of an input that is added to each one's: more trusts calibration data less."""
        passes: int = Field(2, ge=0)
        """How often the choices are gone over again, at most."""
        convolutions: bool = True
        """Also round convolutions, whose patches take minutes where there are dozens of layers; off: matrix products alone."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tensors(self, model: ir.Model, setting: Setting) -> frozenset[str]:
        """None: it looks at what layers multiply."""
        del model, setting
        return frozenset()

    def apply(self, model: ir.Model, setting: Setting, seen: Seen) -> Change:
        """Round the weights of every layer of the plan that multiplies by a constant matrix."""
        done: dict[str, str] = {}
        names = Names(model.graph)

        def work(found: tuple[list[Layer], Floats]) -> list[tuple[Layer, Doubles, float]]:
            return self._rounded(*found, setting, seen)

        layers = [layer for layer in products(model, setting) if self.options.convolutions or layer.op != "Conv"]
        with threadpool_limits(1):  # sums over several threads depend on their number
            for part in ordered_map(work, seen.inputs(layers)):
                for layer, weights, gain in part:
                    write_matrices(model.graph, layer, weights, names)
                    done[layer.name] = f"weights rounded together, error of its products divided by {gain:.1f}"
        return Change(done)

    def _rounded(self, layers: Sequence[Layer], rows: Floats, setting: Setting, seen: Seen) -> list[tuple[Layer, Doubles, float]]:
        read = quantized(rows, layers, setting, seen.ranges)
        second = damped(moments(read, read), self.options.damping)
        found = []
        for layer in layers:
            weights = matrices(layer).astype(np.float64)
            scale, grid = _scales(layer, weights, setting), setting.dialect.weights
            nearest = grid.round(weights / scale) * scale
            below, above = (end * scale for end in grid.around(weights / scale))
            chosen = round_up_or_down(weights, second, (below, above), passes=self.options.passes)
            before, after = (float(rounding_cost(weights, second, instead).sum()) for instead in (nearest, chosen))
            if after < before:
                found.append((layer, chosen, before / max(after, _TINY)))
        return found


def _scales(layer: Layer, weights: Doubles, setting: Setting) -> npt.NDArray[np.float64]:
    """The step of every output channel, `[groups, out, 1]`, as the weight will be written."""
    flat = weights.reshape(-1, weights.shape[2])
    low, high = slice_extremes(flat, 0 if setting.per_channel and layer.channel_axis is not None else None)
    scale = setting.dialect.weights.params(low, high).scale.astype(np.float64)
    return np.broadcast_to(scale.reshape(-1, 1), (len(flat), 1)).reshape(*weights.shape[:2], 1)
