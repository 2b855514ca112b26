"""Cost models: what every layer costs in every format on a target, and what a change of format costs; one file each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from quant.core.costs import ConversionTimes, CostTable, EngineProfile, ModelWork
from quant.core.registry import Options, Registry


@dataclass(frozen=True)
class Setting:
    """What is to be priced.

    Args:
        work: What one run asks of the layers.
        formats: Layer -> the formats to price; every layer of `work` has some.
        body: Format of what is no layer.
        target: The serving engine; empty where none is meant.
        profiles: Format -> what the engine's profiler says of the model in that format, and of the model in `body`; for models that measure.
        conversions: Format -> what changes into it and back take, where its layers hand on codes; for models that measure.
    """

    work: ModelWork
    formats: Mapping[str, Sequence[str]]
    body: str = "fp32"
    target: str = ""
    profiles: Mapping[str, EngineProfile] = field(default_factory=dict)
    conversions: Mapping[str, ConversionTimes] = field(default_factory=dict)


class CostModel(Protocol):
    """Prices layers and boundaries."""

    kind: ClassVar[str]
    Options: ClassVar[type[Options]]
    measures: ClassVar[bool]
    """Whether it prices by `Setting.profiles`; what does not is an estimate, or a count."""
    quantity: ClassVar[str]
    """What is priced: `time`, `size`, `bits` or `work`."""

    def table(self, setting: Setting) -> CostTable:
        """A price for every layer in each of its formats.

        Raises:
            PlanError: Something has no price: a format that the GPU does not compute in, a layer that the engine does not show.
        """
        ...


COSTS: Registry[CostModel] = Registry("cost model", "quant.costs")
