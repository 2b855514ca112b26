"""`tensorrt-rtx`: NVIDIA TensorRT-RTX, for the GPUs of workstations.

Engines are built ahead of time for GPUs that need not be there, and are not run here: accuracy is that of the very graph that
goes into the engine, run by ONNX Runtime as it is written.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, Literal

import onnx_ir as ir
from pydantic import Field

from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, PrecisionPlan
from quant.graph.runtime import Runtime
from quant.targets import TARGETS, Availability, Shapes
from quant.targets.nvidia.building import BuildFiles, build_engines
from quant.targets.nvidia.engine_host.capabilities import convolve_in_fp8
from quant.targets.nvidia.exporting import audit_engines, emulated, listing_in, refuse_lacking, write_graph
from quant.targets.nvidia.options import EngineOptions, engine_dialect
from quant.targets.nvidia.profiles import resolve_profile

_MODULE, _PACKAGE = "tensorrt_rtx", "tensorrt-rtx-cu13"
_NO_CONVOLUTION = "sm75"
"""On Turing, TensorRT-RTX has integer kernels for matrix products alone; a quantized convolution falls back to FP16."""

Capability = Literal["sm75", "sm80", "sm86", "sm89", "sm120"]


@TARGETS.add
class TensorRtRtx:
    """TensorRT-RTX engines, one for each GPU compute capability."""

    kind: ClassVar[str] = "tensorrt-rtx"
    ahead_of_time: ClassVar[bool] = True

    class Options(EngineOptions):
        """Options of `tensorrt-rtx`."""

        compute_capabilities: tuple[Capability, ...] = Field(("sm89",), min_length=1)
        """GPUs to build for: `sm75` Turing, `sm80` and `sm86` Ampere, `sm89` Ada, `sm120` Blackwell; one engine for each."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._capabilities: tuple[str, ...] = options.compute_capabilities
        self.dialect = engine_dialect(
            options.body, convolutions=_NO_CONVOLUTION not in options.compute_capabilities, fp8_convolutions=convolve_in_fp8(self._capabilities)
        )

    def available(self) -> Availability:
        """Whether TensorRT-RTX is installed; it needs no GPU to build."""
        if importlib.util.find_spec(_MODULE) is None:
            reason, install = "TensorRT-RTX is not installed", "pip install 'quant-toolkit[tensorrt-rtx]' (NVIDIA's licence applies)"
            return Availability(available=False, reason=reason, install=install)
        return Availability(available=True, version=version(_PACKAGE), note="builds engines without a GPU; does not run them")

    def emulates(self, number_format: str) -> str | None:
        """Every format: engines are built here, and run elsewhere."""
        return f"no GPU is used here: accuracy is that of the {number_format} graph in ONNX Runtime, without optimizations"

    def export(self, model: ir.Model, folder: Path, *, scheme: str, shapes: Mapping[str, Shapes] | None = None) -> Artifact:
        """Write the graph, and for each compute capability the engine, the build log and the list of layers.

        The engine's bytes may differ from build to build, so only the graph and the lists of layers have digests. The size is that
        of one engine, the largest: all that a machine needs.

        Raises:
            TargetError: A GPU lacks a format of the graph, an input has dynamic dimensions without a profile, or TensorRT refuses the graph.
        """
        refuse_lacking(model, self._capabilities, option="compute_capabilities")
        profile = resolve_profile(model, self.options.profiles, shapes or {})
        path = write_graph(model, folder)
        files = {c: BuildFiles(folder / f"model.{c}.engine", folder / f"build.{c}.log", _listing(folder, c)) for c in self._capabilities}
        build_engines(_MODULE, path, files, profile, self.options.model_dump(include={"workspace_mib", "tf32"}))
        unsteady = {part for parts in files.values() for part in (parts.engine, parts.log)}
        digests = {p.name: digest_of_file(p) for p in sorted(folder.iterdir()) if p not in unsteady}
        largest = max(parts.engine.stat().st_size for parts in files.values())
        return Artifact(target=self.kind, scheme=scheme, main=path.name, files=digests, size_bytes=largest)

    def session(self, artifact: Artifact, folder: Path, *, threads: int) -> Runtime:
        """The graph that went into the engine, in ONNX Runtime."""
        return emulated(artifact, folder, threads=threads)

    def audit(self, artifact: Artifact, folder: Path, plan: PrecisionPlan, layers: Mapping[str, str]) -> Audit:
        """Read from the engine's list of layers what each product of the plan was compiled to; all compute capabilities must agree."""
        del layers
        return audit_engines(artifact, folder, plan, {c: listing_in(_listing(folder, c)) for c in self._capabilities})


def _listing(folder: Path, capability: str) -> Path:
    return folder / f"layers.{capability}.json"
