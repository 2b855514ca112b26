"""`bytes`: the size of the model's weights, as they are stored."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from quant.core.costs import CostTable, LayerCost
from quant.core.registry import Options as PluginOptions
from quant.costs import COSTS, Setting
from quant.costs.widths import stored_bits, weight_bits

_BITS_PER_BYTE = 8


@COSTS.add
class Bytes:
    """Bytes of weights; boundaries cost none."""

    kind: ClassVar[str] = "bytes"
    measures: ClassVar[bool] = False
    quantity: ClassVar[str] = "size"

    class Options(PluginOptions):
        """Options of `bytes`."""

        block: int = Field(32, ge=1)
        """Weights of fewer than 8 bits that share a scale."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def table(self, setting: Setting) -> CostTable:
        """Bytes of each layer's weights."""
        rows = tuple(
            LayerCost(
                layer=one.layer, costs={f: one.weights * stored_bits(f, setting.body, self.options.block) / _BITS_PER_BYTE for f in setting.formats[one.layer]}
            )
            for one in setting.work.layers
        )
        return CostTable(
            kind=self.kind,
            unit="bytes",
            estimated=False,
            source="the shapes of the weights",
            model=setting.work.model,
            body=setting.body,
            layers=rows,
            rest=setting.work.other_weights * weight_bits(setting.body) / _BITS_PER_BYTE,
        )
