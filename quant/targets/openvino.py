"""`openvino`: OpenVINO on the CPU.

Dialect: unsigned asymmetric activations against signed weights per output channel, with Q/DQ in front of layers; OpenVINO
itself carries integers across what stands between them. Products of two activations want symmetric operands: a zero point
there is subtracted in float, and the product follows. Biases stay float. Zero points of what a weight multiplies are moved
into the bias behind it where that is exact.

Dynamic INT8 is OpenVINO's own: it quantizes what INT8 weights multiply by itself, in groups of as many values as the artifact
says, each row by itself. Its runtime model does not show it; the audit tries every such product alone.

The artifact is OpenVINO's own format (IR: `model.xml`, `model.bin`), weights in the types that the graph gives them. On
CPUs with BF16 arithmetic OpenVINO computes float layers in BF16 unless it is told otherwise; here it always is told.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.costs import EngineProfile
from quant.core.dialect import Dialect, Float8, Int4Form
from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, AuditRow, PrecisionPlan
from quant.core.formats import INT8, UINT8
from quant.errors import TargetError
from quant.graph.groups import leave_rounding_to_engine
from quant.graph.model import write_model
from quant.graph.zero_points import move_zero_points
from quant.targets import TARGETS, Availability, Shapes, TargetOptions
from quant.targets.vino.compiling import GROUP, compile_model, said
from quant.targets.vino.profiling import profile
from quant.targets.vino.rounding import rounds_in_groups

MODEL_FILE = "model.xml"
_SINK = "/sink_port_0"  # what OpenVINO adds to the name of an ONNX output
_PRODUCTS = frozenset({"MatMul", "Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData"})
_PRODUCT_KERNELS = frozenset({"FullyConnected", "MatMul", "Convolution", "Deconvolution"})
_WEIGHT_PORTS = {"FullyConnected": 1, "Gather": 0}
"""Kernels that read weights in codes of 4 bits, and the input that has them."""
_MOVING = frozenset({"FakeQuantize", "Convert", "Subtract", "Multiply", "Transpose", "Reshape", "Unsqueeze", "Squeeze"})
_FORMATS = {"i8": "int8", "u8": "int8", "f32": "fp32", "bf16": "bf16", "f16": "fp16"}
_INTEGERS = frozenset({"i8", "u8"})
_INT4 = frozenset({"i4", "u4"})
_NOT_FOUND = ("(not found)", "unknown")


@TARGETS.add
class OpenVino:
    """OpenVINO, CPU plug-in."""

    kind: ClassVar[str] = "openvino"
    ahead_of_time: ClassVar[bool] = False
    dialect: ClassVar[Dialect] = Dialect(
        integer=frozenset({"Conv", "Gemm", "MatMul"}),
        dynamic=frozenset({"Gemm", "MatMul"}),
        dynamic_group=64,
        dynamic_outputs=2,
        activations=UINT8,
        operands=INT8,
        weights=INT8,
        chained=frozenset({"Conv", "Add", "MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"}),
        transparent=frozenset({"MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"}),
        melting=frozenset({"Relu", "Clip"}),
        integer_bias=frozenset(),
        left_operands=INT8,
        fp8=Float8(frozenset({"Conv", "Gemm", "MatMul"})),
        int4=Int4Form(products="dequantize", tables="multiply", sizes=(32, 64, 128, 16, 256), pads=False, asymmetric=True, least_outputs=2),
    )

    class Options(TargetOptions):
        """Options of `openvino`."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def available(self) -> Availability:
        """Whether OpenVINO can be imported; and the precision that it would compute in, were it not told."""
        try:
            import openvino  # noqa: PLC0415 - optional
        except ImportError as error:
            return Availability(available=False, reason=f"OpenVINO cannot be imported: {error}", install="pip install 'quant-toolkit[openvino]'")
        default = openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
        note = "" if default == "f32" else f"float layers run in f32 here; OpenVINO's own default on this CPU is {default}"
        return Availability(available=True, version=version("openvino"), note=note)

    def emulates(self, number_format: str) -> str | None:
        """FP16 weights are widened to FP32 when the model is compiled; FP8 is rounded to, by way of FP16, and computed in FP32."""
        if number_format in {"fp16", "bf16"}:
            return f"OpenVINO widens {number_format.upper()} weights to FP32 and computes in FP32, as it is told to here"
        return "OpenVINO rounds to FP8 on this CPU, and computes in FP32" if number_format == "fp8" else None

    def export(self, model: ir.Model, folder: Path, *, scheme: str, shapes: Mapping[str, Shapes] | None = None) -> Artifact:
        """Write `model.xml` and `model.bin`, the same bytes each time.

        Raises:
            TargetError: OpenVINO cannot read the graph.
        """
        del shapes
        import openvino  # noqa: PLC0415 - optional, heavy

        move_zero_points(model)
        group = leave_rounding_to_engine(model)
        with tempfile.TemporaryDirectory() as scratch:
            source = write_model(model, Path(scratch))
            try:
                read = openvino.Core().read_model(source)
            except RuntimeError as error:
                raise _refusal(error, model) from error
            _give_names(read)
            # With groups of 0, what INT8 or INT4 weights are multiplied with stays float; OpenVINO's own default is to quantize it, unasked.
            read.set_rt_info(str(group), ["runtime_options", GROUP])
            folder.mkdir(parents=True, exist_ok=True)
            openvino.save_model(read, folder / MODEL_FILE, compress_to_fp16=False)
        files = {p.name: digest_of_file(p) for p in sorted(folder.iterdir())}
        total = sum(p.stat().st_size for p in folder.iterdir())
        return Artifact(target=self.kind, scheme=scheme, main=MODEL_FILE, files=files, size_bytes=total)

    def session(self, artifact: Artifact, folder: Path, *, threads: int) -> OpenVinoSession:
        """Load the artifact as a server that answers one request at a time would.

        Raises:
            TargetError: OpenVINO cannot compile it.
        """
        return OpenVinoSession(compile_model(folder / artifact.main, threads=threads))

    def audit(self, artifact: Artifact, folder: Path, plan: PrecisionPlan, layers: Mapping[str, str]) -> Audit:
        """Read the kernels from the graph that OpenVINO made of the artifact for this machine."""
        import openvino  # noqa: PLC0415 - optional, heavy

        path = folder / artifact.main
        compiled = compile_model(path, threads=1)
        graphs = _Graphs(openvino.Core().read_model(path), compiled.get_runtime_model(), group=int(compiled.get_property(GROUP)))
        rows = []
        for choice in plan.layers:
            kernel, runs = graphs.find(choice.layer, layers[choice.layer])
            rows.append(AuditRow(layer=choice.layer, planned=choice.format, runs=runs, kernel=kernel, agrees=runs == choice.format))
        return Audit(target=self.kind, scheme=artifact.scheme, rows=tuple(rows))

    def profile(
        self, artifact: Artifact, folder: Path, feeds: Sequence[Mapping[str, npt.NDArray[Any]]], layers: Mapping[str, str], *, threads: int, runs: int
    ) -> EngineProfile:
        """What each kernel takes, by OpenVINO's own performance counters."""
        import openvino  # noqa: PLC0415 - optional, heavy

        path = folder / artifact.main
        compiled = compile_model(path, threads=threads, PERF_COUNT="YES")
        graphs = _Graphs(openvino.Core().read_model(path), compiled.get_runtime_model(), group=int(compiled.get_property(GROUP)))
        kernels = {layer: kernel.get_friendly_name() for layer, output in layers.items() if (kernel := graphs.kernel(layer, output)) is not None}
        timed = profile(compiled, compile_model(path, threads=threads), feeds, kernels, runs=runs)
        machine = f"CPU, {threads} {'thread' if threads == 1 else 'threads'}"
        told = f"{self.kind} {version('openvino')}"
        return EngineProfile(target=told, scheme=artifact.scheme, machine=machine, runs=runs, total_ms=timed.total_ms, kernels=timed.kernels)


class OpenVinoSession:
    """A compiled model; each thread that runs it has a request of its own.

    Args:
        compiled: An `openvino.CompiledModel`.
    """

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._own = threading.local()
        self._inputs = tuple(port.get_node().get_friendly_name() for port in compiled.inputs)
        self.outputs = tuple(port.get_node().get_friendly_name().removesuffix(_SINK) for port in compiled.outputs)

    def run(self, feed: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The outputs for one batch.

        Raises:
            TargetError: OpenVINO cannot run the model on this input.
        """
        request = getattr(self._own, "request", None)
        if request is None:
            request = self._own.request = self._compiled.create_infer_request()
        inputs = {number: np.asarray(feed[name], order="C") for number, name in enumerate(self._inputs)}
        try:
            request.infer(inputs, share_inputs=True)
        except RuntimeError as error:
            shapes = ", ".join(f"{k} {v.dtype}{list(v.shape)}" for k, v in feed.items())
            raise TargetError(f"OpenVINO cannot run the model on {shapes}: {said(error)}") from error
        return {name: request.get_output_tensor(number).data.copy() for number, name in enumerate(self.outputs)}


def _refusal(error: RuntimeError, model: ir.Model) -> TargetError:
    """OpenVINO's refusal of a graph, with the first node that it speaks of."""
    text, reason = str(error), said(error)
    node = next((n for n in model.graph if n.name and n.name in text), None)
    node = node or next((n for n in model.graph if f"{n.domain}.{n.op_type}".lstrip(".") in reason.replace("-", " ").split()), None)
    where = f"node {node.name!r} ({node.op_type})" if node is not None else ""
    return TargetError(
        f"OpenVINO cannot read the model: {reason}", where=where, hint="leave this model to another target, or write the node in other operators"
    )


def _give_names(read: Any) -> None:
    """Name what OpenVINO itself added by its place in the graph: its own names count on over all models of a process."""
    ordered = read.get_ordered_ops()
    taken = {op.get_friendly_name() for op in ordered if op.get_friendly_name() != op.get_name()}
    for number, op in enumerate(ordered):
        if op.get_friendly_name() == op.get_name():
            name = f"{op.get_type_name()}_{number}"
            op.set_friendly_name(name if name not in taken else f"{name}_added")
    read.set_friendly_name("model")


class _Graphs:
    """The graph as it was written, and as OpenVINO executes it; names join them.

    Args:
        written: The model as read from the artifact.
        executed: Its runtime model: one node for each kernel, with the names of all that went into it.
        group: Values that share a scale where OpenVINO quantizes activations by itself; 0: it does not.
    """

    def __init__(self, written: Any, executed: Any, *, group: int) -> None:
        self._group = group
        self._written = {op.get_friendly_name(): op for op in written.get_ordered_ops()}
        self._home: dict[str, Any] = {}
        for kernel in executed.get_ordered_ops():
            for name in _told(kernel, "originalLayersNames").split(","):
                for stem in (name, name.split("/WithoutBiases")[0], name.split("/Dequantization")[0]):
                    self._home.setdefault(stem, kernel)

    def find(self, layer: str, output: str) -> tuple[str, str]:
        """(kernel, format) that computes `layer`, which makes the tensor `output`."""
        found = self._found(layer, output)
        return _NOT_FOUND if found is None else found[1:]

    def kernel(self, layer: str, output: str) -> Any:
        """The kernel that computes `layer`, which makes the tensor `output`; None when there is none."""
        found = self._found(layer, output)
        return None if found is None else found[0]

    def _found(self, layer: str, output: str) -> tuple[Any, str, str] | None:
        """(kernel, what it is called, format) of a layer."""
        for name in (layer, f"{layer}/WithoutBiases", output):
            op = self._written.get(name)
            kernel = self._home.get(name) or (self._behind(op) if op is not None else None)
            if kernel is None:
                continue
            kind = _told(kernel, "layerType")
            if kind in _WEIGHT_PORTS:
                weight = kernel.input(_WEIGHT_PORTS[kind]).get_element_type()
                if _short(weight) in _INT4:
                    return kernel, f"{kind} ({_told(kernel, 'primitiveType').removeprefix('undef_')}, weights in {_short(weight)})", "int4"
                product = self._product(layer)
                if self._group and product is not None and _short(weight) in _INTEGERS and rounds_in_groups(product, self._group):
                    return kernel, f"{kind} ({_told(kernel, 'primitiveType').removeprefix('undef_')}, activations in i8 by groups of {self._group})", "int8"
            if kind == "Gather":
                return kernel, kind, _FORMATS.get(_short(kernel.input(0).get_element_type()), "unknown")
            if kind in _PRODUCT_KERNELS:
                primitive = _told(kernel, "primitiveType")
                # Which code runs may be chosen at the first request (`undef_I8`); what it computes in is settled before.
                return kernel, f"{kind} ({primitive.removeprefix('undef_')})", _FORMATS.get(primitive.rsplit("_", 1)[-1].lower(), "unknown")
            if kind == "Subgraph" and op is not None:
                integers = all(self._is_integer(op.input(i).get_source_output().get_node(), kernel) for i in range(op.get_input_size()))
                return kernel, f"{kind} ({_told(kernel, 'primitiveType')})", "int8" if integers else "fp32"
        return None

    def _product(self, layer: str) -> Any:
        """The product of `layer` as it was written; what adds its bias may bear the layer's name."""
        found = (self._written.get(name) for name in (layer, f"{layer}/WithoutBiases"))
        return next((op for op in found if op is not None and op.get_type_name() == "MatMul"), None)

    def _behind(self, op: Any) -> Any:
        """The kernel of what `op` goes into, when nothing says where `op` itself is: it was fused with that.

        A product is fused with what is added to it, or, with other products, into a `Subgraph`.
        """
        for _ in range(len(self._written)):
            readers = [port.get_node() for out in op.outputs() for port in out.get_target_inputs()]
            if len(readers) != 1:
                return None
            op = readers[0]
            kernel = self._home.get(op.get_friendly_name())
            if kernel is not None:
                return None if op.get_type_name() in _PRODUCTS and _told(kernel, "layerType") != "Subgraph" else kernel
        return None

    def _is_integer(self, op: Any, kernel: Any) -> bool:
        """Whether what `op` gives arrives in the `kernel` that reads it as integers, or is made integers in there."""
        while True:
            home = self._home.get(op.get_friendly_name())
            if home is not None and home is not kernel:
                return _short(home.get_output_element_type(0)) in _INTEGERS
            if home is kernel and _short(op.get_output_element_type(0)) in _INTEGERS:
                return True
            if op.get_type_name() not in _MOVING:
                return False
            op = op.input(0).get_source_output().get_node()


def _told(kernel: Any, key: str) -> str:
    """What the runtime model tells of a kernel."""
    return str(kernel.get_rt_info()[key].astype(str))


def _short(element_type: Any) -> str:
    return str(element_type.get_type_name())
