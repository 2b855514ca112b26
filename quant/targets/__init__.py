"""Targets: serving engines, one file each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt
import onnx_ir as ir

from quant.core.costs import EngineProfile
from quant.core.dialect import Dialect
from quant.core.documents import Artifact, Audit, PrecisionPlan
from quant.core.registry import Options, Registry


@dataclass(frozen=True)
class Availability:
    """Whether an engine can be used on this host, and if not, why and how to get it; `note` says what is good to know of it here."""

    available: bool
    version: str = ""
    reason: str = ""
    install: str = ""
    note: str = ""


class TargetOptions(Options):
    """What every target can be told."""

    allow_fallback: bool = False
    """Let a candidate pass though the engine runs some of its planned layers in another format; otherwise it fails."""


class Shapes(NamedTuple):
    """Shapes that one input takes, batch axis included: the least along each axis, the usual, and the largest."""

    least: tuple[int, ...]
    usual: tuple[int, ...]
    largest: tuple[int, ...]


class Session(Protocol):
    """An artifact, loaded into its engine."""

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the outputs, in order."""
        ...

    def run(self, feed: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The outputs for one batch."""
        ...


class Target(Protocol):
    """A serving engine."""

    kind: ClassVar[str]
    Options: ClassVar[type[TargetOptions]]

    @property
    def ahead_of_time(self) -> bool:
        """Whether its engines are built here for machines elsewhere: they are not timed here, and their audits count all the same.

        It may depend on the options, and on what this machine has.
        """
        ...

    @property
    def dialect(self) -> Dialect:
        """The form of graph that it wants; with options, that of these options."""
        ...

    @property
    def options(self) -> TargetOptions:
        """The options as the recipe gives them."""
        ...

    def available(self) -> Availability:
        """Whether this engine can be used here."""
        ...

    def emulates(self, number_format: str) -> str | None:
        """Why this engine has no speed of its own for a format on this host; None when it computes in it."""
        ...

    def export(self, model: ir.Model, folder: Path, *, scheme: str, shapes: Mapping[str, Shapes] | None = None) -> Artifact:
        """Write `model` (already in this target's dialect) and whatever the engine needs into `folder`.

        `shapes` has the shapes that the data give to inputs with dynamic dimensions; only a target that builds ahead of time, or asks for them, is given any.
        """
        ...

    def session(self, artifact: Artifact, folder: Path, *, threads: int) -> Session:
        """Load an artifact; results do not depend on `threads`."""
        ...

    def audit(self, artifact: Artifact, folder: Path, plan: PrecisionPlan, layers: Mapping[str, str]) -> Audit:
        """What the engine runs for every layer of `plan`; `layers` gives the output tensor of each."""
        ...


@runtime_checkable
class Profiles(Protocol):
    """A target whose engine tells what each of its kernels takes."""

    def profile(
        self, artifact: Artifact, folder: Path, feeds: Sequence[Mapping[str, npt.NDArray[Any]]], layers: Mapping[str, str], *, threads: int, runs: int
    ) -> EngineProfile:
        """Times of kernels on `feeds`, and the layers that they compute; `layers` gives the output tensor of each.

        Raises:
            TargetError: The engine does not tell, with these options.
        """
        ...


@runtime_checkable
class TakesShapes(Protocol):
    """A target that runs here and whose export is given `shapes` all the same, to try the graph with."""

    takes_shapes: ClassVar[bool]


@runtime_checkable
class TakesSamples(Protocol):
    """A target whose artifact holds some of the run's data, and what the model makes of them, for machines elsewhere to be held to."""

    reference_samples: ClassVar[int]
    """How many inputs it wants."""

    def export(
        self,
        model: ir.Model,
        folder: Path,
        *,
        scheme: str,
        shapes: Mapping[str, Shapes] | None = None,
        samples: Sequence[Mapping[str, npt.NDArray[Any]]] | None = None,
    ) -> Artifact:
        """`Target.export`, with inputs of the evaluation data; such a target is always given `shapes` as well."""
        ...


TARGETS: Registry[Target] = Registry("target", "quant.targets")
