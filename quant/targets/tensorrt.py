"""`tensorrt`: NVIDIA TensorRT, for GPU hosts.

Where TensorRT and a GPU are, the engine is built, read, run and timed. Elsewhere what is written is all that a GPU host needs to do
so with one command; the candidate is then judged by the very graph in ONNX Runtime, and is not audited.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import onnx_ir as ir
from pydantic import Field, model_validator

from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, PrecisionPlan
from quant.targets import TARGETS, Availability, Session, Shapes
from quant.targets.nvidia.building import BuildFiles, build_engines
from quant.targets.nvidia.engine_host.building import ON_THIS_GPU
from quant.targets.nvidia.engine_host.capabilities import convolve_in_fp8
from quant.targets.nvidia.engine_host.command import ENGINE_FILE, LAYERS_FILE, LOG_FILE
from quant.targets.nvidia.engine_host.cuda import Cuda
from quant.targets.nvidia.exporting import audit_engines, emulated, listing_in, refuse_lacking, write_graph
from quant.targets.nvidia.gpu import GpuSession, missing
from quant.targets.nvidia.gpu_host import write_build_folder, write_reference
from quant.targets.nvidia.noise import Feed
from quant.targets.nvidia.options import EngineOptions, engine_dialect
from quant.targets.nvidia.profiles import resolve_profile

_MODULE = "tensorrt"
_BUILD = {"workspace_mib", "tf32", "builder_optimization_level", "timing_cache", "hardware_compatibility_level", "version_compatible"}
_BUILD |= {"exclude_lean_runtime", "weight_streaming", "refit", "strip_plan", "max_aux_streams"}
"""Options that say how to build."""
_OLDEST_AMPERE = "sm80"

Capability = Literal["sm75", "sm80", "sm86", "sm87", "sm89", "sm90", "sm100", "sm103", "sm120", "sm121"]


@TARGETS.add
class TensorRt:
    """TensorRT engines, built here where there is a GPU, else all that building one takes elsewhere."""

    kind: ClassVar[str] = "tensorrt"
    reference_samples: ClassVar[int] = 4

    class Options(EngineOptions):
        """Options of `tensorrt`, by TensorRT's names."""

        compute_capability: Capability | None = None
        """GPU that the engine is for; formats that it lacks are refused before anything is built. That of this machine when not given."""
        builder_optimization_level: int = Field(3, ge=0, le=5)
        """How long the builder looks for fast kernels: 0 hardly, 5 longest."""
        timing_cache: str | None = Field("timing.cache", min_length=1)
        """File that keeps what the builder measured, for the next build; a relative path is in the artifact's folder. None keeps nothing."""
        hardware_compatibility_level: Literal["none", "ampere_plus", "same_compute_capability"] = "none"
        """Other GPUs that the engine is to run on, at the price of speed."""
        version_compatible: bool = False
        """Let newer versions of TensorRT, of the same major version, run the engine."""
        exclude_lean_runtime: bool = False
        """Leave out of a version compatible engine the runtime that it else brings."""
        weight_streaming: bool = False
        """Let weights stay in the host's memory that do not fit into the GPU's."""
        refit: bool = False
        """Let weights be replaced in the built engine."""
        strip_plan: bool = False
        """Leave weights out of the engine; they are put in from the ONNX file when it is loaded (the same, unless `refit` is set)."""
        max_aux_streams: int | None = Field(None, ge=0)
        """Most streams that the engine runs side by side; TensorRT chooses when not given."""
        cuda_graph: bool = True
        """Launch an inference as one CUDA graph, so that the host does not enqueue kernel by kernel."""

        @model_validator(mode="after")
        def _consistent(self) -> TensorRt.Options:
            if self.exclude_lean_runtime and not self.version_compatible:
                raise ValueError("exclude_lean_runtime needs version_compatible: other engines bring no runtime")
            return self

    def __init__(self, options: Options) -> None:
        self.options = options
        self._missing = missing(_MODULE)
        self.dialect = engine_dialect(options.body, fp8_convolutions=convolve_in_fp8(self._capabilities()))

    @property
    def ahead_of_time(self) -> bool:
        """Whether there is no TensorRT, or no GPU for it, here."""
        return self._missing is not None

    def available(self) -> Availability:
        """It always is: what a GPU host needs can be written anywhere; `note` says whether an engine is built here."""
        if self._missing is None:
            return Availability(available=True, version=str(importlib.import_module(_MODULE).__version__), note=f"builds for {Cuda().capability()}")
        note = f"{self._missing}: writes all that a GPU host needs to build, audit and compare the engine; judged in ONNX Runtime, not audited"
        return Availability(available=True, version="10 or 11", note=note)

    def emulates(self, number_format: str) -> str | None:
        """Every format where there is no GPU for TensorRT; none where there is."""
        if self._missing is None:
            return None
        return f"no engine was built here: accuracy is that of the {number_format} graph in ONNX Runtime, without optimizations"

    def export(
        self, model: ir.Model, folder: Path, *, scheme: str, shapes: Mapping[str, Shapes] | None = None, samples: Sequence[Feed] | None = None
    ) -> Artifact:
        """Write the graph and all that building takes; where there is a GPU, the engine as well.

        Args:
            model: The graph in this target's dialect.
            folder: Where to.
            scheme: Title of the scheme.
            shapes: Shapes that the data give to inputs with dynamic dimensions.
            samples: Inputs that the engine's outputs are to be compared on; none are when there are none.

        Raises:
            TargetError: The GPU lacks a format of the graph, an input has dynamic dimensions without a profile, or TensorRT refuses the graph.
        """
        refuse_lacking(model, self._capabilities(), option="compute_capability")
        profile = resolve_profile(model, self.options.profiles, shapes or {})
        path = write_graph(model, folder)
        size = sum(p.stat().st_size for p in folder.iterdir())
        build = self.options.model_dump(include=_BUILD)
        title = f"a model quantized as {scheme!r}" if scheme != "fp32" else "the FP32 model"
        write_build_folder(folder, model, title=title, profile=profile, build=build, cuda_graph=self.options.cuda_graph)
        if samples:
            write_reference(folder, samples, tf32=self.options.tf32)
        digests = {str(p.relative_to(folder)): digest_of_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}
        if self._missing is None:
            size = self._build(path, folder, profile, build)
        return Artifact(target=self.kind, scheme=scheme, main=path.name, files=digests, size_bytes=size)

    def _capabilities(self) -> list[str]:
        """The GPUs that the engine must run on."""
        found = [c for c in (self.options.compute_capability, Cuda().capability() if self._missing is None else None) if c is not None]
        return found + ([_OLDEST_AMPERE] if self.options.hardware_compatibility_level == "ampere_plus" else [])

    def _build(self, path: Path, folder: Path, profile: Mapping[str, Shapes], build: dict[str, Any]) -> int:
        """Build the engine on this machine's GPU; gives its size in bytes."""
        cache = build["timing_cache"]
        files = BuildFiles(folder / ENGINE_FILE, folder / LOG_FILE, folder / LAYERS_FILE)
        build_engines(_MODULE, path, {ON_THIS_GPU: files}, profile, {**build, "timing_cache": str(folder / cache) if cache else None})
        return files.engine.stat().st_size

    def session(self, artifact: Artifact, folder: Path, *, threads: int) -> Session:
        """The engine on the GPU; where none was built, its graph in ONNX Runtime."""
        engine = folder / ENGINE_FILE
        if self._missing is not None or not engine.is_file():
            return emulated(artifact, folder, threads=threads)
        stripped = folder / artifact.main if self.options.strip_plan else None
        return GpuSession(_MODULE, engine, cuda_graph=self.options.cuda_graph, weights_from=stripped)

    def audit(self, artifact: Artifact, folder: Path, plan: PrecisionPlan, layers: Mapping[str, str]) -> Audit:
        """Read from the engine's list of layers what each product of the plan was compiled to; without an engine, say why there is no audit."""
        del layers
        listing = folder / LAYERS_FILE
        if not listing.is_file():
            why = f"no engine was built here ({self._missing or 'the artifact was written on another machine'}); build_engine.py audits it on a GPU host"
            return Audit(target=self.kind, scheme=artifact.scheme, rows=(), unaudited=why)
        return audit_engines(artifact, folder, plan, {ON_THIS_GPU: listing_in(listing)})
