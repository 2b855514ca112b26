"""Cost models: what every layer costs in every format on a target, and what a change of format costs; one file each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from quant.core.costs import CostTable, ModelWork
from quant.core.registry import Options, Registry


@dataclass(frozen=True)
class Setting:
    """What is to be priced.

    Args:
        work: What one run asks of the layers.
        formats: Layer -> the formats to price, in the order in which they are to stand.
        body: Format of what is no layer.
        target: The serving engine.
    """

    work: ModelWork
    formats: Mapping[str, Sequence[str]]
    body: str = "fp32"
    target: str = ""
