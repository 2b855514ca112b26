"""`roofline`: an estimate for a GPU that is not here, from its vendor's data sheet.

A layer takes as long as the slower of two things: moving its weights and activations once, and multiplying at the best rate of
its format. Kernels reach neither, and engines fuse what is counted apart here; so the table is marked as estimated wherever it is shown.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic import field_validator

from quant.core.costs import Boundary, CostTable, Crossing, LayerCost, LayerWork, crossing
from quant.core.registry import Options as PluginOptions
from quant.core.registry import did_you_mean
from quant.costs import COSTS, Setting
from quant.costs.widths import activation_bits, carried, stored_bits
from quant.errors import PlanError

_DATA = Path(__file__).with_name("gpus.json")
_BLOCK = 32
_GIGA, _TERA, _MILLISECONDS, _BITS_PER_BYTE = 1e9, 1e12, 1e3, 8


class Gpu(NamedTuple):
    """What a data sheet says.

    Args:
        name: As in recipes.
        capability: Compute capability.
        bandwidth: Bytes a second.
        rates: Format -> operations a second, dense; a multiplication and its addition are two.
        source: The data sheet.
    """

    name: str
    capability: str
    bandwidth: float
    rates: dict[str, float]
    source: str


@cache
def gpus() -> dict[str, Gpu]:
    """All GPUs that are known, by name."""
    told = json.loads(_DATA.read_text(encoding="utf-8"))["gpus"]
    return {
        name: Gpu(name, one["capability"], one["bandwidth"] * _GIGA, {f: rate * _TERA for f, rate in one["rates"].items()}, one["source"])
        for name, one in told.items()
    }


@COSTS.add
class Roofline:
    """The slower of moving bytes and multiplying, for a GPU by its data sheet; estimated."""

    kind: ClassVar[str] = "roofline"
    measures: ClassVar[bool] = False
    quantity: ClassVar[str] = "time"

    class Options(PluginOptions):
        """Options of `roofline`."""

        gpu: str = "L4"
        """Name of the GPU."""
        tf32: bool = True
        """Whether FP32 layers may be multiplied in TF32, as engines do unless they are told otherwise."""

        @field_validator("gpu")
        @classmethod
        def _is_known(cls, name: str) -> str:
            if name not in gpus():
                raise ValueError(f"no GPU {name!r} is known; {did_you_mean(name, list(gpus()))}")
            return name

    def __init__(self, options: Options) -> None:
        self.options = options
        self._gpu = gpus()[options.gpu]

    def table(self, setting: Setting) -> CostTable:
        """Estimated milliseconds of every layer and boundary.

        Raises:
            PlanError: The GPU does not compute in a format that is to be priced.
        """
        rows = tuple(
            LayerCost(layer=one.layer, costs={f: self._layer(one, f, setting.body) for f in setting.formats[one.layer]}) for one in setting.work.layers
        )
        return CostTable(
            kind=self.kind,
            unit="ms",
            estimated=True,
            source=f"{self._gpu.name}: {self._gpu.source}",
            target=setting.target,
            model=setting.work.model,
            samples=setting.work.samples,
            body=setting.body,
            layers=rows,
            boundaries=tuple(self._boundary(one, setting) for one in setting.work.crossings),
        )

    def _layer(self, one: LayerWork, number_format: str, body: str) -> float:
        moved = one.weights * stored_bits(number_format, body, _BLOCK) + (one.read + one.written) * activation_bits(number_format, body)
        computing = 2 * one.products / self._rate(number_format, body)
        return max(moved / _BITS_PER_BYTE / self._gpu.bandwidth, computing) * _MILLISECONDS

    def _rate(self, number_format: str, body: str) -> float:
        # Weights of 4 bits alone are widened on their way to the multiplication.
        computed = carried(number_format, body)
        computed = "fp16" if computed == "bf16" else computed  # at the same rate on every GPU that has both
        if computed == "fp32" and self.options.tf32:
            computed = "tf32" if "tf32" in self._gpu.rates else "fp32"
        if computed not in self._gpu.rates:
            raise PlanError(f"{self._gpu.name} does not compute in {computed}", where="cost model roofline", hint=f"it does in {', '.join(self._gpu.rates)}")
        return self._gpu.rates[computed]

    def _boundary(self, one: Crossing, setting: Setting) -> Boundary:
        """Reading a tensor in one format and writing it in another, wherever these differ in what is stored."""
        body = setting.body

        def formats(layers: tuple[str, ...], *, also: bool) -> list[str]:
            return list(dict.fromkeys([f for layer in layers for f in setting.formats[layer]] + ([body] if also else [])))

        prices: dict[str, float] = {}
        for before in formats((one.maker,), also=False) if one.maker is not None else [body]:
            for after in formats(one.readers, also=one.open):
                if carried(before, body) != carried(after, body):
                    bits = activation_bits(before, body) + activation_bits(after, body)
                    prices[crossing(before, after)] = one.elements * bits / _BITS_PER_BYTE / self._gpu.bandwidth * _MILLISECONDS
        return Boundary(tensor=one.tensor, maker=one.maker, readers=one.readers, open=one.open, prices=prices)
