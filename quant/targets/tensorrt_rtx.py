"""`tensorrt-rtx`: NVIDIA TensorRT-RTX, for the GPUs of workstations.

Engines are built ahead of time for GPUs that need not be there, and are not run here: accuracy is that of the very graph that
goes into the engine, run by ONNX Runtime as it is written.

Dialect: signed symmetric Q/DQ in front of every quantized product and nowhere else, weights per output channel, float biases, and
every type written into the graph, for the network is strongly typed: what is not quantized is FP16 (`body`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, Literal

import onnx_ir as ir
from pydantic import BaseModel, ConfigDict, Field, model_validator

from quant.core.dialect import Body, Dialect
from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, AuditRow, PrecisionPlan
from quant.core.formats import INT8
from quant.errors import TargetError
from quant.graph.bf16 import has_bf16, write_rounding
from quant.graph.body import BODY_OPSET
from quant.graph.importing import MINIMUM_OPSET
from quant.graph.layers import find_layers
from quant.graph.model import MODEL_FILE, read_model, write_model
from quant.graph.runtime import Runtime
from quant.targets import TARGETS, Availability, Shapes, TargetOptions
from quant.targets.nvidia.building import BuildFiles, build_engines
from quant.targets.nvidia.capabilities import formats_in, lacking
from quant.targets.nvidia.listing import engine_layers, read_layers, write_layers
from quant.targets.nvidia.reading import kernel_of, products_of

_MODULE, _PACKAGE = "tensorrt_rtx", "tensorrt-rtx-cu13"
_NO_CONVOLUTION = "sm75"
"""On Turing, TensorRT-RTX has integer kernels for matrix products alone; a quantized convolution falls back to FP16."""

Capability = Literal["sm75", "sm80", "sm86", "sm89", "sm120"]


class Profile(BaseModel):
    """Shapes that an input may have, batch axis included; the engine is tuned for `opt`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    @model_validator(mode="after")
    def _ordered(self) -> Profile:
        if not len(self.min) == len(self.opt) == len(self.max) or not all(0 < a <= b <= c for a, b, c in zip(self.min, self.opt, self.max, strict=True)):
            raise ValueError("min, opt and max must have the same number of dimensions, with 0 < min <= opt <= max in each")
        return self


@TARGETS.add
class TensorRtRtx:
    """TensorRT-RTX engines, one for each GPU compute capability."""

    kind: ClassVar[str] = "tensorrt-rtx"
    ahead_of_time: ClassVar[bool] = True

    class Options(TargetOptions):
        """Options of `tensorrt-rtx`."""

        compute_capabilities: tuple[Capability, ...] = Field(("sm89",), min_length=1)
        """GPUs to build for: `sm75` Turing, `sm80` and `sm86` Ampere, `sm89` Ada, `sm120` Blackwell; one engine for each."""
        body: Body = "fp16"
        """What everything that is not quantized runs in; `bf16` where FP16 overflows in too many places (Ampere and newer)."""
        workspace_mib: int | None = Field(None, ge=1)
        """Most scratch memory that a layer may use, in MiB; all there is when not given."""
        tf32: bool = False
        """Let FP32 products be computed in TF32, with 10 bits of mantissa."""
        profiles: dict[str, Profile] = Field(default_factory=dict)
        """Input -> shapes it may have; from the calibration and evaluation samples when not given."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._capabilities: tuple[str, ...] = options.compute_capabilities
        self.dialect = Dialect(
            integer=frozenset({"Gemm", "MatMul"} if _NO_CONVOLUTION in options.compute_capabilities else {"Conv", "Gemm", "MatMul"}),
            dynamic=frozenset(),
            activations=INT8,
            operands=INT8,
            weights=INT8,
            chained=frozenset(),
            transparent=frozenset(),
            melting=frozenset(),
            integer_bias=frozenset(),
            opset=MINIMUM_OPSET if options.body == "fp32" else BODY_OPSET,
            body=options.body,
            residual=True,
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
        found = formats_in(model)
        for capability in self._capabilities:
            if lacks := lacking(capability, found):
                what = f"GPUs of compute capability {capability} have no {' and no '.join(lacks)}"
                raise TargetError(what, hint="take it out of `compute_capabilities`, or choose another scheme or body")
        profile = self._profile(model, shapes or {})
        for layer in find_layers(model):
            layer.node.name = layer.name  # the engine's list of layers speaks of nodes by their names
        path = write_model(model, folder)
        files = {c: BuildFiles(folder / f"model.{c}.engine", folder / f"build.{c}.log") for c in self._capabilities}
        build_engines(_MODULE, path, files, profile, workspace_mib=self.options.workspace_mib, tf32=self.options.tf32)
        for capability, parts in files.items():
            write_layers(_listing(folder, capability), engine_layers(parts.log.read_text(encoding="utf-8")))
        unsteady = {part for parts in files.values() for part in (parts.engine, parts.log)}
        digests = {p.name: digest_of_file(p) for p in sorted(folder.iterdir()) if p not in unsteady}
        largest = max(parts.engine.stat().st_size for parts in files.values())
        return Artifact(target=self.kind, scheme=scheme, main=path.name, files=digests, size_bytes=largest)

    def _profile(self, model: ir.Model, shapes: Mapping[str, Shapes]) -> dict[str, Shapes]:
        """Shapes of every input that has dynamic dimensions: the recipe's, else those of the data."""
        inputs = {str(v.name): v for v in model.graph.inputs if v.name not in model.graph.initializers}
        if unknown := sorted(set(self.options.profiles) - set(inputs)):
            raise TargetError(f"`profiles` names {unknown[0]!r}, which is no input of the model", hint=f"inputs: {', '.join(inputs)}")
        given = {name: Shapes(p.min, p.opt, p.max) for name, p in self.options.profiles.items()}
        profile: dict[str, Shapes] = {}
        for name, value in inputs.items():
            if value.shape is not None and all(isinstance(d, int) for d in value.shape):
                continue
            chosen = given.get(name) or shapes.get(name)
            if chosen is None:
                what = f"input {name!r} has the dynamic shape {value.shape} and no profile"
                raise TargetError(what, hint=f"give the target `profiles: {{{name}: {{min: [...], opt: [...], max: [...]}}}}`")
            if value.shape is not None and not _fits(value.shape, chosen):
                raise TargetError(f"the profile {list(map(list, chosen))} does not fit input {name!r} of shape {value.shape}")
            profile[name] = chosen
        return profile

    def session(self, artifact: Artifact, folder: Path, *, threads: int) -> Runtime:
        """Load the graph that went into the engine into ONNX Runtime, to be computed as it is written; BF16 as rounded FP32."""
        path = folder / artifact.main
        model = read_model(path)
        if not has_bf16(model):
            return Runtime(path, threads=threads, optimize=False)
        write_rounding(model)
        return Runtime(model, folder=folder, threads=threads, optimize=False)

    def audit(self, artifact: Artifact, folder: Path, plan: PrecisionPlan, layers: Mapping[str, str]) -> Audit:
        """Read from the engine's list of layers what each product of the plan was compiled to; all compute capabilities must agree."""
        del layers
        products = products_of(read_model(folder / MODEL_FILE))
        listings = {c: read_layers(_listing(folder, c)) for c in self._capabilities}
        rows = []
        for choice in plan.layers:
            found = {c: kernel_of(listing, products[choice.layer]) for c, listing in listings.items()}
            runs = {c: pair[1] for c, pair in found.items()}
            wrong = next((c for c, r in runs.items() if r != choice.format), None)
            capability = wrong or next(iter(found))
            kernel = found[capability][0] + (f" on {capability}" if len(found) > 1 and wrong else "")
            rows.append(AuditRow(layer=choice.layer, planned=choice.format, runs=runs[capability], kernel=kernel, agrees=wrong is None))
        return Audit(target=self.kind, scheme=artifact.scheme, rows=tuple(rows))


def _fits(shape: ir.Shape, chosen: Shapes) -> bool:
    return all(len(s) == len(shape) and all(not isinstance(d, int) or d == n for d, n in zip(shape, s, strict=True)) for s in chosen)


def _listing(folder: Path, capability: str) -> Path:
    return folder / f"layers.{capability}.json"
