"""`bits`: effective bits, the mean over all weights of layers of the bits that each is stored in."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from quant.core.costs import CostTable, LayerCost
from quant.core.registry import Options as PluginOptions
from quant.costs import COSTS, Setting
from quant.costs.widths import stored_bits


@COSTS.add
class EffectiveBits:
    """Each layer's share in the bits of an average weight; a layer without weights has none."""

    kind: ClassVar[str] = "bits"
    measures: ClassVar[bool] = False
    quantity: ClassVar[str] = "bits"

    class Options(PluginOptions):
        """Options of `bits`."""

        block: int = Field(32, ge=1)
        """Weights of fewer than 8 bits that share a scale."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def table(self, setting: Setting) -> CostTable:
        """Bits of each layer's weights, over the number of all layers' weights."""
        count = sum(one.weights for one in setting.work.layers) or 1
        rows = tuple(
            LayerCost(layer=one.layer, costs={f: one.weights * stored_bits(f, setting.body, self.options.block) / count for f in setting.formats[one.layer]})
            for one in setting.work.layers
        )
        return CostTable(
            kind=self.kind,
            unit="bits a weight",
            estimated=False,
            source="the shapes of the weights",
            model=setting.work.model,
            body=setting.body,
            layers=rows,
        )
