"""Sensitivity: what each layer does to the outputs in each format, one way to find it a file.

An estimator is given the FP32 graph, the samples, and how a plan is written; it finds an effect for each layer and format, with
its standard error. Effects are small where a format does little, and 0 for FP32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy.typing as npt
import onnx_ir as ir

from quant.core.registry import Options, Registry
from quant.core.sensitivity import Effect
from quant.core.signature import Signature
from quant.data.batches import Batch
from quant.sensitivity.measuring.outputs import Measures

Run = Callable[[Mapping[str, "npt.NDArray[Any]"]], dict[str, "npt.NDArray[Any]"]]


class Write(Protocol):
    """Writes the graph with some layers in a format, all others in FP32."""

    def __call__(self, number_format: str, layers: Collection[str], *, plain: bool = False) -> ir.Model:
        """A graph of one's own: as the target wants it, or `plain`, with weights in blocks behind DequantizeLinear."""
        ...


@dataclass(frozen=True)
class Subject:
    """What is measured.

    Args:
        model: The FP32 graph, in an operator set in which every format can be written, with the types of its values.
        folder: Where its external data lie.
        signature: Its inputs and outputs.
        candidates: Format -> the layers that can be in it, in graph order.
        write: Writes plans.
        measures: What is measured of which output.
        batches: The samples, in batches, the same each time.
        steps: Runs a model over the samples one by one and gives the outputs of each step; for a model that remembers.
        remembers: Whether the model remembers from step to step.
    """

    model: ir.Model
    folder: Path
    signature: Signature
    candidates: Mapping[str, Sequence[str]]
    write: Write
    measures: Measures
    batches: Callable[[], Iterator[Batch]]
    steps: Callable[[Run], Iterator[dict[str, npt.NDArray[Any]]]]
    remembers: bool = False


@dataclass(frozen=True)
class Found:
    """What an estimator found.

    Args:
        effects: Effects of single layers.
        samples: Number of feeds that they were found on.
        reference: What an effect of 1 is.
        joint: All candidates of a format at once, where that was found.
        failed: Format -> why this estimator cannot tell of it; another must.
        measure: What effects are, where it is not what `Measures.name` says.
    """

    effects: Sequence[Effect]
    samples: int
    reference: float = 1.0
    joint: Sequence[Effect] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    measure: str | None = None


class Estimator(Protocol):
    """A way to find the effects of layers."""

    kind: ClassVar[str]
    Options: ClassVar[type[Options]]

    def estimate(self, subject: Subject) -> Found:
        """The effect of every candidate.

        Raises:
            ModelError: The model cannot be computed.
            DataError: A sample does not fit the model.
        """
        ...


ESTIMATORS: Registry[Estimator] = Registry("estimator", "quant.sensitivity")
