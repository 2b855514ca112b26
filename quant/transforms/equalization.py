"""`equalization`: channels between layers are scaled so that weights before and behind are as even as they can be.

Where a scale serves a whole weight, a channel with small weights has few codes. Channel c of what lies between two layers may be
divided by s_c, the rows of the weights before it too, and the columns behind be multiplied: with s = √(r / q), r and q being the largest weights
before and behind, both are √(r q) (Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction").

That is exact only through what keeps straight lines from 0: Relu, LeakyRelu, pooling, sums of tensors that are scaled alike. A Clip
to [0, 6] has its end elsewhere in each channel afterwards, for which no engine has a kernel in integers: channels end there.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx_ir as ir
from pydantic import Field

from quant.core.registry import Options as PluginOptions
from quant.graph.channels import Doubles, Free, divide_channels, free_channels, tops_before, tops_behind
from quant.graph.layers import find_layers
from quant.graph.names import Names
from quant.transforms import TRANSFORMS, Change, Seen, Setting

_EVEN = 1.01
"""Factors nearer to 1 are not worth a further round."""


@TRANSFORMS.add
class Equalization:
    """Evens out the weights of layers that follow one another."""

    kind: ClassVar[str] = "equalization"
    bases: ClassVar[frozenset[str]] = frozenset({"int8"})
    keeps_function: ClassVar[bool] = True
    keeps_tensors: ClassVar[bool] = False

    class Options(PluginOptions):
        """Options of `equalization`."""

        rounds: int = Field(20, ge=1)
        """How often all layers are gone over, at most: each pair of layers changes its neighbours'."""
        largest: float = Field(1e4, gt=1)
        """Largest factor for a channel, and one over the smallest."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tensors(self, model: ir.Model, setting: Setting) -> frozenset[str]:
        """None: weights say all."""
        del model, setting
        return frozenset()

    def apply(self, model: ir.Model, setting: Setting, seen: Seen) -> Change:
        """Even out every set of channels that is free between layers of the plan."""
        del seen
        chosen = set(setting.plan.quantized)
        found = [free for free in free_channels(find_layers(model)) if chosen & {layer.name for layer in (*free.before, *free.behind)}]
        total = [np.ones(tops_before(free.before[0]).size) for free in found]
        names = Names(model.graph)
        for _ in range(self.options.rounds):
            moved = 1.0
            for number, free in enumerate(found):
                scale = np.clip(total[number] * _even(free), 1 / self.options.largest, self.options.largest) / total[number]
                divide_channels(model.graph, free, scale, names)
                total[number] *= scale
                moved = max(moved, float(np.exp(np.abs(np.log(scale)).max())))
            if moved < _EVEN:
                break
        done: dict[str, str] = {}
        for free, scale in zip(found, total, strict=True):
            if scale.max() >= _EVEN * scale.min():
                behind = ", ".join(layer.name for layer in free.behind)
                done |= {layer.name: f"channels evened out with {behind}, by factors {scale.min():.2g} to {scale.max():.2g}" for layer in free.before}
        return Change(done)


def _even(free: Free) -> Doubles:
    """The factor √(r / q) for each channel; 1 where weights before or behind are nothing but zeros.

    Several layers are compared by shares of the largest weight of each.
    """
    before, behind = (np.max([tops / max(tops.max(), np.finfo(np.float64).tiny) for tops in part], axis=0) for part in _tops(free))
    alive = (before > 0) & (behind > 0)
    return np.where(alive, np.sqrt(np.where(alive, before, 1) / np.where(alive, behind, 1)), 1.0)


def _tops(free: Free) -> tuple[list[Doubles], list[Doubles]]:
    return [tops_before(layer) for layer in free.before], [tops_behind(layer) for layer in free.behind]
