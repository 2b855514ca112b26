"""`int4`: weights in 4 bits, with a scale for each block of them; activations stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import onnx_ir as ir
from pydantic import Field

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.graph.blocks.choose import BlockOptions, choose_blocks, layers_by_source
from quant.graph.blocks.matrices import int4_obstacle, matrix_shape
from quant.graph.blocks.ties import keep_ties
from quant.graph.blocks.write import write_blocks
from quant.graph.layers import TABLE_OP, Layer
from quant.graph.planning import choose_layers, planned, with_more_reasons
from quant.schemes import SCHEMES, Evidence, Needs, SchemeOptions


@SCHEMES.add
class Int4:
    """Weights in 4 bits, in blocks."""

    kind: ClassVar[str] = "int4"
    base: ClassVar[str] = "int4"
    data: ClassVar[Literal["none", "calibration", "training"]] = "calibration"

    class Options(SchemeOptions):
        """Options of `int4`."""

        method: Literal["rtn", "gptq", "awq"] = "gptq"
        """How codes are chosen: `rtn` rounds each weight to the nearest; `gptq` lets the weights still to be rounded make good the errors of
        those before; `awq` first scales up the weights that large inputs multiply. The last two look at calibration data."""
        block_size: Literal[16, 32, 64, 128, 256] | None = None
        """Weights that share a scale; when not given, what suits the target best and divides the rows of the layer."""
        symmetric: bool = True
        """Keep the zero point at 0; off: each block has its own, where the target knows zero points."""
        search: bool = True
        """Cut the range of each block where that makes its error less."""
        embeddings: bool = True
        """Also write tables that rows are looked up in (always to the nearest)."""
        damping: float = Field(0.01, gt=0, le=1)
        """`gptq`: share of the mean squared input that is added to every input's own, so that few samples do not mislead it."""
        by_activity: bool = False
        """`gptq`: round the weights of the largest inputs first."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def plan(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect) -> PrecisionPlan:
        """INT4 for every product with a weight, and for every table, that the target reads in 4 bits."""
        del model
        plan = choose_layers(
            self.kind, self.base, layers, include=self.options.include, exclude=self.options.exclude, obstacle=lambda layer: self._obstacle(layer, dialect)
        )
        return keep_ties(plan, layers)

    def _obstacle(self, layer: Layer, dialect: Dialect) -> str | None:
        form, asked = dialect.int4, self.options
        if form is not None and not asked.symmetric and not form.asymmetric:
            return "the target knows no zero points (`symmetric: true`)"
        return int4_obstacle(layer, form, block_size=asked.block_size, embeddings=asked.embeddings)

    def needs(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> Needs:
        """Second moments of what the planned products read; nothing for rounding to the nearest."""
        del dialect
        if self.options.method == "rtn":
            return Needs()
        products = [layer for layer in planned(model, plan) if layer.op != TABLE_OP]
        return Needs(moments={source: matrix_shape(found[0])[1] for source, found in layers_by_source(products).items()})

    def apply(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> PrecisionPlan:
        """Choose codes for every planned weight and write them in the target's form."""
        form, asked = dialect.int4, self.options
        if form is None or not plan.quantized:
            return plan
        how = BlockOptions(asked.method, asked.block_size, asked.symmetric, asked.search, asked.damping, asked.by_activity)
        weights, said = choose_blocks(model, planned(model, plan), evidence.moments, form, how, body=dialect.body)
        write_blocks(model, weights, form)
        return with_more_reasons(plan, said)
