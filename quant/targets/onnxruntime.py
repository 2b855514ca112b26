"""`onnxruntime`: ONNX Runtime, on the CPU unless an option names its provider for CUDA or for TensorRT.

Dialect on the CPU: unsigned activations against signed weights (the pairing that its VNNI kernels take), Q/DQ in front of matrix
products and not behind them (they fuse to `MatMulIntegerToFloat`, which keeps the sums exact), and Q/DQ around
convolutions and what stands between them (they fuse to `QLinearConv`, `QLinearAdd`, ...). TensorRT wants that of its own engines.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy.typing as npt
import onnx_ir as ir

from quant.core.costs import EngineProfile
from quant.core.dialect import Dialect, Float8, Int4Form
from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, AuditRow, PrecisionPlan
from quant.core.formats import INT8, UINT8
from quant.errors import TargetError
from quant.graph.model import attribute, read_model, write_model
from quant.graph.rectified import spell_out_bounds
from quant.graph.runtime import Runtime, plain_options, start_session
from quant.targets import TARGETS, Availability, Shapes
from quant.targets.nvidia.options import engine_dialect
from quant.targets.ort.names import PREPARING, find, names_of
from quant.targets.ort.profiling import profile
from quant.targets.ort.providers import ProviderOptions, missing, provider_list

INTEGER_KERNELS = frozenset(
    {"QLinearConv", "QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm", "MatMulInteger", "ConvInteger", "QLinearConvTranspose"}
)
INT4_KERNELS = frozenset({"MatMulNBits", "GatherBlockQuantized"})
_INT4_BITS = 4
_BLOCK_SIZES = (32, 64, 128, 16, 256)
_SINGLE_FILE_BELOW_BYTES = 1 << 30


_ON_CPU = Dialect(
    integer=frozenset({"Conv", "Gemm", "MatMul"}),
    dynamic=frozenset({"Gemm", "MatMul"}),
    activations=UINT8,
    operands=UINT8,
    weights=INT8,
    chained=frozenset(
        {
            "Conv",
            "Add",
            "Mul",
            "Concat",
            "AveragePool",
            "GlobalAveragePool",
            "MaxPool",
            "Sigmoid",
            "LeakyRelu",
            "Reshape",
            "Flatten",
            "Squeeze",
            "Unsqueeze",
            "Transpose",
        }
    ),
    transparent=frozenset({"MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"}),
    melting=frozenset({"Relu", "Clip"}),
    integer_bias=frozenset({"Conv", "Gemm"}),
    gemm=True,
    fp8=Float8(frozenset({"Conv", "Gemm", "MatMul"})),
)
# It has kernels for neither QLinearConv nor MatMulInteger on bytes without a sign: it computes Q/DQ graphs in float, slower than without.
_ON_CUDA = replace(_ON_CPU, integer=frozenset(), dynamic=frozenset(), chained=frozenset(), transparent=frozenset(), integer_bias=frozenset(), gemm=False)


@TARGETS.add
class OnnxRuntime:
    """ONNX Runtime: its CPU, CUDA or TensorRT execution provider."""

    kind: ClassVar[str] = "onnxruntime"
    ahead_of_time: ClassVar[bool] = False

    class Options(ProviderOptions):
        """Options of `onnxruntime`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        if options.provider == "tensorrt":
            self.dialect = engine_dialect(options.body)
            return
        own = options.int4 == "matmulnbits"
        form = Int4Form(
            products=options.int4,
            tables="gatherblockquantized" if own else None,
            sizes=_BLOCK_SIZES,
            pads=own,
            asymmetric=True,
            accuracy_level=None if options.accuracy_level == "auto" else options.accuracy_level,
        )
        self.dialect = replace(_ON_CUDA if options.provider == "cuda" else _ON_CPU, int4=form)

    def available(self) -> Availability:
        """ONNX Runtime comes with the toolkit, for CPUs; its builds for GPUs do not."""
        import onnxruntime as ort  # noqa: PLC0415 - heavy

        if why := missing(self.options, ort.get_available_providers()):
            return Availability(available=False, reason=why, install=f"pip install onnxruntime-gpu=={ort.__version__} in place of onnxruntime, with a GPU")
        return Availability(available=True, version=ort.__version__)

    def emulates(self, number_format: str) -> str | None:
        """On a CPU, FP16 is computed in FP32 with casts around it; CUDA computes integers in float."""
        if self.options.provider == "cpu" and number_format in {"fp16", "bf16"}:
            return f"ONNX Runtime computes {number_format.upper()} in FP32 on this CPU, with casts around it"
        if self.options.provider == "cpu" and number_format == "fp8":
            return "ONNX Runtime rounds to FP8 on this CPU, and computes in FP32"
        if self.options.provider == "cuda" and number_format not in {"fp32", "fp16", "bf16", "int4"}:
            return f"ONNX Runtime's CUDA provider has no kernels for {number_format}: it computes in floating point between Q and DQ"
        return None

    def export(self, model: ir.Model, folder: Path, *, scheme: str, shapes: Mapping[str, Shapes] | None = None) -> Artifact:
        """Write `model.onnx`, one file as long as it is below 1 GiB."""
        del shapes
        spell_out_bounds(model)
        size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
        main = write_model(model, folder, single_file=size < _SINGLE_FILE_BELOW_BYTES)
        files = {p.name: digest_of_file(p) for p in sorted(folder.iterdir())}
        total = sum(p.stat().st_size for p in folder.iterdir())
        return Artifact(target=self.kind, scheme=scheme, main=main.name, files=files, size_bytes=total)

    def session(self, artifact: Artifact, folder: Path, *, threads: int) -> Runtime:
        """Load the artifact as a server would, with all graph optimizations.

        Raises:
            TargetError: ONNX Runtime falls back to another provider than was asked for.
        """
        path = folder / artifact.main
        if self.options.provider == "cpu":
            return Runtime(path, threads=threads)
        providers = provider_list(self.options, read_model(path))
        runtime = Runtime(path, threads=threads, providers=providers)
        if runtime.providers[0] != providers[0][0]:
            what = f"ONNX Runtime could not start {providers[0][0]}, and would run the model with {runtime.providers[0]}"
            raise TargetError(what, where=str(path), hint="check the GPU's driver, CUDA, cuDNN and, for TensorRT, its libraries")
        return runtime

    def audit(self, artifact: Artifact, folder: Path, plan: PrecisionPlan, layers: Mapping[str, str]) -> Audit:
        """Read the kernels from the graph that ONNX Runtime itself optimized for this machine.

        What it gives to TensorRT it does not show; the target `tensorrt` audits such engines.
        """
        if self.options.provider == "tensorrt":
            unseen = (AuditRow(layer=c.layer, planned=c.format, runs="unknown", kernel="(within TensorRT)", agrees=False) for c in plan.layers)
            return Audit(target=self.kind, scheme=artifact.scheme, rows=tuple(unseen))
        kernels = _kernels(folder / artifact.main, self.options)
        # Changing the layout of what is left in float takes its names away; the graph before that still has them.
        named = cache(lambda: _kernels(folder / artifact.main, self.options, layout=False))
        rows = []
        for choice in plan.layers:
            output = layers[choice.layer]
            kernel, runs = find(kernels, choice.layer, output) or find(named(), choice.layer, output) or ("(not found)", "unknown")
            rows.append(AuditRow(layer=choice.layer, planned=choice.format, runs=runs, kernel=kernel, agrees=runs == choice.format))
        return Audit(target=self.kind, scheme=artifact.scheme, rows=tuple(rows))

    def profile(
        self, artifact: Artifact, folder: Path, feeds: Sequence[Mapping[str, npt.NDArray[Any]]], layers: Mapping[str, str], *, threads: int, runs: int
    ) -> EngineProfile:
        """What each kernel takes, by ONNX Runtime's own profiler.

        Raises:
            TargetError: The model runs within TensorRT, whose kernels ONNX Runtime does not see.
        """
        import onnxruntime as ort  # noqa: PLC0415 - heavy

        if self.options.provider == "tensorrt":
            raise TargetError("ONNX Runtime does not see the kernels that it gives to TensorRT", hint="take another cost model, such as roofline")
        timed = profile(folder / artifact.main, feeds, layers, providers=provider_list(self.options), threads=threads, runs=runs)
        machine = f"{self.options.provider}, {threads} {'thread' if threads == 1 else 'threads'}"
        version = f"{self.kind} {ort.__version__}"
        return EngineProfile(target=version, scheme=artifact.scheme, machine=machine, runs=runs, total_ms=timed.total_ms, kernels=timed.kernels)


def _kernels(path: Path, told: ProviderOptions, *, layout: bool = True) -> dict[str, tuple[str, str]]:
    """Name of a node, an output or a weight -> (operator, format) that uses it in the graph as ONNX Runtime runs it."""
    import onnxruntime as ort  # noqa: PLC0415 - heavy

    with tempfile.TemporaryDirectory() as folder:
        optimized = Path(folder) / "optimized.onnx"
        options = plain_options()
        if not layout:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(optimized)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimized.data")
        start_session(str(path), options, provider_list(told), where=str(path))
        graph = ir.load(optimized).graph
        found: dict[str, tuple[str, str]] = {}
        for node in graph:
            half = told.provider != "cpu" and any(v.dtype == ir.DataType.FLOAT16 for v in node.outputs)
            entry = node.op_type, "int8" if node.op_type in INTEGER_KERNELS else "int4" if _reads_int4(node) else "fp16" if half else "fp32"
            if node.op_type in PREPARING:
                continue  # they prepare a layer's inputs, they do not compute it
            for name in names_of(node, graph.initializers):
                found.setdefault(name, entry)
        return found


def _reads_int4(node: ir.Node) -> bool:
    """Whether `node` multiplies, or looks up, weights of 4 bits as they are."""
    return node.op_type in INT4_KERNELS and attribute(node, "bits", _INT4_BITS) == _INT4_BITS
