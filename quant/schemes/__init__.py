"""Schemes: named ways to use number formats, one file each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.core.formats import FORMATS, Grid, Range
from quant.core.registry import Options, Registry
from quant.graph.layers import Layer
from quant.graph.qdq import Placed
from quant.twin.training.material import Material


class SchemeOptions(Options):
    """What every scheme can be told about layers.

    Patterns are shell patterns on layer names, or `op:Conv` for all layers of one operator.
    """

    include: tuple[str, ...] = ()
    """Only these layers (all when empty)."""
    exclude: tuple[str, ...] = ()
    """Leave these layers in higher precision."""


@dataclass(frozen=True)
class Needs:
    """What a scheme must know of activations before it can be applied.

    Args:
        ranges: Tensor -> grid that its range is wanted for.
        magnitudes: Whether the largest magnitude of every float tensor is wanted.
        known: Tensor -> range that is known without looking.
        means: Tensors, among those of `ranges`, whose mean in each slice along axis 1 (channels) is wanted.
        moments: Tensor -> length of its last axis, of tensors whose second moments along that are wanted: E[x xᵀ] over all vectors x.
        training: Whether samples to train on are wanted.
    """

    ranges: Mapping[str, Grid] = field(default_factory=dict)
    known: Mapping[str, Range] = field(default_factory=dict)
    magnitudes: bool = False
    means: frozenset[str] = frozenset()
    moments: Mapping[str, int] = field(default_factory=dict)
    training: bool = False


@dataclass(frozen=True)
class Evidence:
    """What calibration found, as a scheme is given it.

    Args:
        ranges: Tensor -> range, for all that `Needs.ranges` asked for or `Needs.known` told.
        magnitudes: Tensor -> largest magnitude seen.
        means: Tensor -> float64 `[channels]`, for all that `Needs.means` asked for.
        moments: Tensor -> upper triangle of its second moments, float64 (`quant.core.moments.unpacked`), for all that `Needs.moments` asked for.
        training: What to train on; None: the graph is to be as it is before training.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    magnitudes: Mapping[str, float] = field(default_factory=dict)
    means: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    moments: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    training: Material | None = None


class Scheme(Protocol):
    """A scheme first plans, then says what it needs to know, then rewrites the graph."""

    kind: ClassVar[str]
    Options: ClassVar[type[SchemeOptions]]
    base: ClassVar[str]
    """Format of the layers that the scheme quantizes."""
    data: ClassVar[Literal["none", "calibration", "training"]]
    """What data it needs."""

    def plan(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect) -> PrecisionPlan:
        """Give every layer a format and a reason.

        Raises:
            PlanError: A pattern matches no layer.
        """
        ...

    def needs(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> Needs:
        """What must be known of activations to apply `plan`."""
        ...

    def apply(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> PrecisionPlan:
        """Rewrite `model` in place; gives the plan as it was carried out (evidence may have excluded more layers)."""
        ...


@runtime_checkable
class Places(Protocol):
    """A scheme whose quantizers can stand around float weights, for a loop of the user's own to train."""

    def place(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> Placed:
        """Write Q/DQ around every planned layer of `model`, in place, and leave the weights in float."""
        ...


@runtime_checkable
class OwnGrids(Protocol):
    """A scheme that writes on other grids than those that the dialect names."""

    def on_its_grids(self, dialect: Dialect) -> Dialect:
        """`dialect` with the grids that this scheme writes."""
        ...


def on_grids_of(scheme: Scheme, dialect: Dialect) -> Dialect:
    """`dialect` with the grids that `scheme` writes."""
    return scheme.on_its_grids(dialect) if isinstance(scheme, OwnGrids) else dialect


SCHEMES: Registry[Scheme] = Registry("scheme", "quant.schemes")

_DATA = ("none", "calibration", "training")


def cost(scheme: Scheme) -> tuple[int, int]:
    """What a scheme takes, to be compared with others': first the data that it needs, then the bits that its layers do without.

    Example:
        >>> sorted(("int8", "int8-dynamic", "fp16"), key=lambda kind: cost(SCHEMES.make(kind)))
        ['int8-dynamic', 'fp16', 'int8']
    """
    return _DATA.index(scheme.data), -ir.DataType(FORMATS[scheme.base].encoding.data_type).bitwidth


def study_of(scheme: Scheme) -> str | None:
    """Why no engine is faster for what a scheme makes with its options; None where one may be."""
    found: str | None = getattr(scheme, "study", None)
    return found
