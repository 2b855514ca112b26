"""Transforms: changes to the FP32 model that make it easier to quantize, one file each.

A transform rewrites the graph, or moves its weights, before a scheme quantizes it. Those that keep the function
(`keeps_function`) are checked against the model as it was; all are kept only when they bring the quantized model closer to
FP32 on samples that did not guide them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.core.formats import Range
from quant.core.registry import Options, Registry
from quant.graph.layers import Layer


@dataclass(frozen=True)
class Extremes:
    """Least and largest value of each channel, float32 `[channels]` each."""

    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]

    @property
    def tops(self) -> npt.NDArray[np.float32]:
        """Largest magnitude of each channel."""
        return np.maximum(-self.low, self.high)

    def divided(self, scale: npt.NDArray[np.float64]) -> tuple[float, float]:
        """Least and largest value over all channels when each is divided by its `scale`."""
        return float((self.low / scale).min()), float((self.high / scale).max())


@dataclass(frozen=True)
class Rows:
    """What calibration data make of a tensor whose last axis are channels.

    Choices that follow the extremes of channels closely look good on the very samples that these are from, and clip others. So
    rows and extremes are of two halves of the samples: what is chosen from `guide` is to be judged on `values`.

    Args:
        values: Some rows of one half of the samples, float32 `[rows, channels]`.
        guide: Extremes over all rows of the other half.
        whole: Extremes over all rows of all samples.
    """

    values: npt.NDArray[np.float32]
    guide: Extremes
    whole: Extremes


Doubles = npt.NDArray[np.float64]
Means = Callable[[ir.Model, Mapping[str, int]], dict[str, Doubles]]
"""A graph with the model's inputs, tensor -> its axis of channels -> tensor -> mean of each channel over calibration samples, float64 `[channels]`."""

Inputs = Callable[[Collection[Layer]], Iterator[tuple[list[Layer], npt.NDArray[np.float32]]]]
"""Layers (each `quant.graph.patches.is_product`) -> those that multiply the same rows, with rows of all samples, float32 `[groups, rows, in]`."""


@dataclass(frozen=True)
class Seen:
    """What a transform may know of the model on calibration data.

    Args:
        rows: Tensor -> rows of it, for all that `Transform.tensors` asked for.
        inputs: Gives what layers multiply; rows of samples are in no order that means anything, those of one sample together.
        ranges: Tensor -> range that it is to be quantized in, as far as is known now.
        quantized: Writes the model as it is, quantized, the rest in FP32; names of tensors and layers are the model's.
        means: Runs a graph, and gives means of its tensors; every sample counts alike.
    """

    rows: Mapping[str, Rows]
    inputs: Inputs
    ranges: Mapping[str, Range]
    quantized: Callable[[], ir.Model]
    means: Means


@dataclass(frozen=True)
class Change:
    """What a transform did.

    Args:
        layers: Layer -> what was done to it; empty when nothing was.
        ranges: Tensor -> range to write instead of what the calibrator would choose.
    """

    layers: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """What a transform prepares the model for.

    Args:
        plan: What each layer is to run in.
        dialect: The form of graph that the target wants.
        per_channel: Whether each output channel of a weight has a scale of its own.
    """

    plan: PrecisionPlan
    dialect: Dialect
    per_channel: bool


class Transform(Protocol):
    """A change to the FP32 model."""

    kind: ClassVar[str]
    Options: ClassVar[type[Options]]
    bases: ClassVar[frozenset[str]]
    """Formats (of schemes) that it can help."""
    keeps_function: ClassVar[bool]
    """Whether the FP32 model computes the same afterwards, but for rounding."""
    keeps_tensors: ClassVar[bool]
    """Whether every tensor is afterwards nearly what it was, so that ranges chosen for it still fit."""

    def tensors(self, model: ir.Model, setting: Setting) -> frozenset[str]:
        """Names of the tensors whose rows it wants to see."""
        ...

    def apply(self, model: ir.Model, setting: Setting, seen: Seen) -> Change:
        """Change `model` in place, or choose ranges for its tensors; an empty change where there is nothing to do."""
        ...


TRANSFORMS: Registry[Transform] = Registry("transform", "quant.transforms")


def transform_options(transform: Transform) -> dict[str, Any]:
    """The options that a transform was made with, for keys of caches."""
    options: Options | None = getattr(transform, "options", None)
    return options.model_dump(mode="json") if options is not None else {}
