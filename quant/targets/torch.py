"""`torch`: PyTorch itself, on the CPU.

The artifact is the twin of the quantized graph, as an exported program (`model.pt2`) and as TorchScript (`model.pt`). Both run
without this toolkit: `torch.export.load`, or `torch.jit.load` from C++. What they hold are ATen operations only.

Dialect: as the quantizers are computed in float, only accuracy speaks: unsigned asymmetric activations, signed weights per
output channel, symmetric operands for products of two activations, Q/DQ in front of layers and nowhere else, float biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Dialect, Float8, Int4Form
from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, AuditRow, PrecisionPlan
from quant.core.formats import INT8, UINT8
from quant.errors import TargetError
from quant.targets import TARGETS, Availability, Shapes, TargetOptions

PROGRAM, SCRIPT = "model.pt2", "model.pt"
_NOT_FOUND = ("(not found)", "unknown")


@TARGETS.add
class Torch:
    """PyTorch on the CPU."""

    kind: ClassVar[str] = "torch"
    ahead_of_time: ClassVar[bool] = False
    takes_shapes: ClassVar[bool] = True
    dialect: ClassVar[Dialect] = Dialect(
        integer=frozenset({"Conv", "Gemm", "MatMul"}),
        dynamic=frozenset({"Gemm", "MatMul"}),
        activations=UINT8,
        operands=INT8,
        weights=INT8,
        chained=frozenset(),
        transparent=frozenset(),
        melting=frozenset(),
        integer_bias=frozenset(),
        left_operands=INT8,
        fp8=Float8(frozenset({"Conv", "Gemm", "MatMul"})),
        int4=Int4Form(products="dequantize", tables="dequantize", sizes=(32, 64, 128, 16, 256), pads=False, asymmetric=True),
    )

    class Options(TargetOptions):
        """Options of `torch`."""

        format: Literal["exported-program", "torchscript", "both"] = "both"
        """What to write: an exported program (`model.pt2`), TorchScript (`model.pt`), or both; the exported program is the one that is run."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def available(self) -> Availability:
        """PyTorch comes with the toolkit."""
        return Availability(available=True, version=version("torch"))

    def emulates(self, number_format: str) -> str | None:
        """Every format but FP32: quantizers round in float, products are computed in FP32."""
        if number_format == "fp32":
            return None
        if number_format in {"fp16", "bf16"}:
            return f"PyTorch's {number_format.upper()} kernels on a CPU may compute in FP32 inside"
        return f"the program rounds to {number_format.upper()} and computes in FP32 between"

    def export(self, model: ir.Model, folder: Path, *, scheme: str, shapes: Mapping[str, Shapes] | None = None) -> Artifact:
        """Write `model.pt2` and `model.pt`, the same bytes each time; the size is that of the one that is run.

        Raises:
            ModelError: An operator that the twin does not compute.
            TargetError: torch cannot export the graph, or TorchScript does not take it.
        """
        from quant.targets.aten import exporting, scripting  # noqa: PLC0415 - heavy

        folder.mkdir(parents=True, exist_ok=True)
        program, interface = exporting.export_program(model, shapes)
        if self.options.format != "torchscript":
            exporting.save_program(program, interface, folder / PROGRAM)
        if self.options.format != "exported-program":
            scripting.save_script(*scripting.to_script(program, interface), folder / SCRIPT)
        files = {path.name: digest_of_file(path) for path in sorted(folder.iterdir())}
        main = SCRIPT if self.options.format == "torchscript" else PROGRAM
        return Artifact(target=self.kind, scheme=scheme, main=main, files=files, size_bytes=(folder / main).stat().st_size)

    def session(self, artifact: Artifact, folder: Path, *, threads: int) -> TorchSession:
        """Load the artifact from disk.

        Raises:
            TargetError: It is damaged, or of another version of PyTorch.
        """
        return TorchSession(folder / artifact.main, threads=threads)

    def audit(self, artifact: Artifact, folder: Path, plan: PrecisionPlan, layers: Mapping[str, str]) -> Audit:
        """Read from the program itself which operation computes each layer, and in what type."""
        del layers
        from quant.targets.aten import reading  # noqa: PLC0415 - heavy

        kernels = reading.kernels(folder / artifact.main)
        rows = []
        for choice in plan.layers:
            # A product of integers whose range is found while running goes by a name of its own.
            kernel, runs = kernels.get(choice.layer) or kernels.get(f"{choice.layer}_MatMulInteger", _NOT_FOUND)
            rows.append(AuditRow(layer=choice.layer, planned=choice.format, runs=runs, kernel=kernel, agrees=runs == choice.format))
        return Audit(target=self.kind, scheme=artifact.scheme, rows=tuple(rows))


class TorchSession:
    """A loaded program.

    Args:
        path: `model.pt2` or `model.pt`.
        threads: Threads of one run.
    """

    def __init__(self, path: Path, *, threads: int) -> None:
        from quant.targets.aten import reading  # noqa: PLC0415 - heavy

        self._module, self._interface = reading.load(path)
        self._threads = threads
        self.outputs = self._interface.outputs

    def run(self, feed: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The outputs for one batch.

        Raises:
            TargetError: PyTorch cannot run the program on this input.
        """
        import torch  # noqa: PLC0415 - heavy

        from quant.targets.aten.threads import on_threads  # noqa: PLC0415 - heavy

        inputs = [torch.from_numpy(np.ascontiguousarray(feed[name])) for name in self._interface.inputs]
        try:
            with on_threads(self._threads), torch.no_grad():
                found = self._module(*inputs)
        except (RuntimeError, AssertionError) as error:
            shapes = ", ".join(f"{k} {v.dtype}{list(v.shape)}" for k, v in feed.items())
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise TargetError(f"PyTorch cannot run the program on {shapes}: {said}", hint=self._hint()) from error
        return {name: tensor.numpy() for name, tensor in zip(self.outputs, found, strict=True)}

    def _hint(self) -> str:
        held = [f"{name} has its axis {axis} ({symbol}) fixed at {n}" for name, axes in self._interface.fixed.items() for axis, (symbol, n) in axes.items()]
        return f"torch could not keep every dimension open: {', '.join(held)}" if held else ""
