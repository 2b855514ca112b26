"""`bitops`: bit operations, each multiplication counted as often as its operands have bits together (Baskin et al. 2021, "UNIQ")."""

from __future__ import annotations

from typing import ClassVar

from quant.core.costs import CostTable, LayerCost
from quant.core.registry import Options as PluginOptions
from quant.costs import COSTS, Setting
from quant.costs.widths import activation_bits, weight_bits


@COSTS.add
class BitOperations:
    """Multiplications times bits of the one operand times bits of the other; boundaries cost none."""

    kind: ClassVar[str] = "bitops"
    measures: ClassVar[bool] = False
    quantity: ClassVar[str] = "work"

    class Options(PluginOptions):
        """Options of `bitops`: none."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def table(self, setting: Setting) -> CostTable:
        """Bit operations of one run."""

        def count(products: int, weights: int, number_format: str) -> float:
            read = activation_bits(number_format, setting.body)
            return float(products * read * (weight_bits(number_format) if weights else read))

        rows = tuple(
            LayerCost(layer=one.layer, costs={f: count(one.products, one.weights, f) for f in setting.formats[one.layer]}) for one in setting.work.layers
        )
        return CostTable(
            kind=self.kind,
            unit="bit operations",
            estimated=False,
            source="the shapes of the layers",
            model=setting.work.model,
            samples=setting.work.samples,
            body=setting.body,
            layers=rows,
        )
