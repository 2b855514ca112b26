"""`tvm`: Apache TVM, compiled for the CPU of this machine.

The graph is imported into Relax, its layers become kernels of our own (`quant.targets.relax`), and all of it one library of machine
code. Dimensions that are dynamic in the graph stay dynamic in the library, so that one serves every batch and every length.

Dialect: unsigned asymmetric activations against signed weights per output channel, the pairing that VNNI instructions take; a zero
point costs nothing at run time. Q/DQ stand in front of layers, and behind what a layer's kernel can do at its end. Biases stay float.
"""

from __future__ import annotations

import importlib.util
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, AuditRow, PrecisionPlan
from quant.core.files import write_text
from quant.core.formats import INT8, UINT8
from quant.errors import TargetError
from quant.graph.model import signature, write_model
from quant.targets import TARGETS, Availability, Shapes, TargetOptions

if TYPE_CHECKING:
    from quant.targets.relax.running import RelaxSession

LIBRARY, FUNCTIONS, BUILD = "model.so", "functions.json", "build.json"
_NOT_FOUND = ("(not found)", "unknown")
_INSTALL = "pip install 'quant-toolkit[tvm]'"


@TARGETS.add
class Tvm:
    """Apache TVM (Relax), on the CPU."""

    kind: ClassVar[str] = "tvm"
    ahead_of_time: ClassVar[bool] = False
    dialect: ClassVar[Dialect] = Dialect(
        integer=frozenset({"Conv", "Gemm", "MatMul"}),
        dynamic=frozenset({"Gemm", "MatMul"}),
        activations=UINT8,
        operands=INT8,
        weights=INT8,
        chained=frozenset({"Conv", "Add", "MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"}),
        transparent=frozenset({"MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"}),
        melting=frozenset({"Relu", "Clip"}),
        integer_bias=frozenset(),
    )

    class Options(TargetOptions):
        """Options of `tvm`."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def available(self) -> Availability:
        """Whether TVM can be imported, and whether there is a C++ compiler, which TVM links libraries with."""
        if importlib.util.find_spec("tvm") is None:
            return Availability(available=False, reason="Apache TVM is not installed", install=_INSTALL)
        try:
            from tvm.support.cc import get_cc  # noqa: PLC0415 - optional, heavy

            from quant.targets.relax.building import host_cpu  # noqa: PLC0415 - optional, heavy
        except (ImportError, OSError) as error:
            return Availability(available=False, reason=f"Apache TVM cannot be imported: {error}", install=_INSTALL)
        if get_cc() is None:
            reason = "Apache TVM links its libraries with a C++ compiler, and finds none here"
            return Availability(available=False, reason=reason, install="install g++ or clang++, or name one in the environment variable CXX")
        return Availability(available=True, version=f"{version('apache-tvm')} for {host_cpu()}")

    def emulates(self, number_format: str) -> str | None:
        """Only FP32 and INT8 are computed in."""
        return None if number_format in {"fp32", "int8"} else f"TVM widens {number_format.upper()} to FP32 here, and computes in FP32"

    def export(self, model: ir.Model, folder: Path, *, scheme: str, shapes: Mapping[str, Shapes] | None = None) -> Artifact:
        """Write the graph, the library compiled from it for this CPU, and the list of what its functions compute.

        LLVM may order instructions one way or the other, so the library's bytes may differ from build to build, and only the other files have
        digests. The size is that of the library: all that a machine needs.

        Raises:
            TargetError: TVM refuses the graph.
        """
        del shapes
        from quant.targets.relax.building import build_library, host_cpu  # noqa: PLC0415 - optional, heavy

        written = write_model(model, folder)
        found = build_library(model, folder / LIBRARY, cpu=host_cpu())
        told = signature(model)
        built = {
            "cpu": host_cpu(),
            "machine": platform.machine(),
            "tvm": version("apache-tvm"),
            "inputs": [spec.name for spec in told.inputs],
            "outputs": [spec.name for spec in told.outputs],
        }
        write_text(folder / BUILD, json.dumps(built, indent=1) + "\n")
        write_text(folder / FUNCTIONS, json.dumps({name: asdict(product) for name, product in found.items()}, indent=1, sort_keys=True) + "\n")
        digests = {p.name: digest_of_file(p) for p in sorted(folder.iterdir()) if p.name != LIBRARY}
        assert written.name in digests
        return Artifact(target=self.kind, scheme=scheme, main=LIBRARY, files=digests, size_bytes=(folder / LIBRARY).stat().st_size)

    def session(self, artifact: Artifact, folder: Path, *, threads: int) -> RelaxSession:
        """Load the library.

        Raises:
            TargetError: It was built for another CPU or by another TVM, or cannot be loaded.
        """
        from quant.targets.relax.building import host_cpu  # noqa: PLC0415 - optional, heavy
        from quant.targets.relax.running import RelaxSession  # noqa: PLC0415 - optional, heavy

        built = _read(folder / BUILD)
        here = {"cpu": host_cpu(), "machine": platform.machine(), "tvm": version("apache-tvm")}
        if different := [f"{key} {built.get(key)!r}, here {value!r}" for key, value in here.items() if built.get(key) != value]:
            raise TargetError(f"the library was built elsewhere: {'; '.join(different)}", where=str(folder / artifact.main), hint="export the model again here")
        if missing := sorted({"inputs", "outputs"} - set(built)):
            raise TargetError(f"says nothing of {' and '.join(missing)}", where=str(folder / BUILD), hint="export the model again")
        return RelaxSession(folder / artifact.main, inputs=built["inputs"], outputs=built["outputs"], threads=threads)

    def audit(self, artifact: Artifact, folder: Path, plan: PrecisionPlan, layers: Mapping[str, str]) -> Audit:
        """Read the types that TVM's own functions multiply and sum up in, as they were when they were compiled."""
        del layers
        from quant.targets.relax.building import Product  # noqa: PLC0415 - optional, heavy

        try:
            found = {name: Product(**{**told, "operands": tuple(told["operands"])}) for name, told in _read(folder / FUNCTIONS).items()}
        except (TypeError, LookupError) as error:
            raise TargetError(f"cannot be read: {error!r}", where=str(folder / FUNCTIONS), hint="export the model again") from error
        rows = []
        for choice in plan.layers:
            product = found.get(choice.layer) or found.get(f"{choice.layer}_MatMulInteger")
            kernel, runs = (product.kernel, product.runs) if product is not None else _NOT_FOUND
            rows.append(AuditRow(layer=choice.layer, planned=choice.format, runs=runs, kernel=kernel, agrees=runs == choice.format))
        return Audit(target=self.kind, scheme=artifact.scheme, rows=tuple(rows))


def _read(path: Path) -> dict[str, Any]:
    """A list that was written when the library was built.

    Raises:
        TargetError: It is missing or damaged.
    """
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise TargetError(f"cannot be read: {error}", where=str(path), hint="export the model again") from error
