"""Steps that every target of NVIDIA's engines takes: refuse what a GPU lacks, write the graph, emulate it, audit its engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from quant.core.documents import Artifact, Audit, AuditRow, PrecisionPlan
from quant.errors import TargetError
from quant.graph.halves import round_halves
from quant.graph.layers import find_layers
from quant.graph.model import MODEL_FILE, read_model, write_model
from quant.graph.runtime import Runtime
from quant.targets.nvidia.engine_host.capabilities import lacking
from quant.targets.nvidia.engine_host.kernels import kernel_of
from quant.targets.nvidia.engine_host.layers import EngineLayer, from_json
from quant.targets.nvidia.formats import formats_in
from quant.targets.nvidia.products import products_of


def refuse_lacking(model: ir.Model, capabilities: Iterable[str], *, option: str) -> None:
    """Refuse a graph that a GPU has no instructions for, before anything is built.

    Args:
        model: The graph.
        capabilities: Compute capabilities that it is for.
        option: The option that names them.

    Raises:
        TargetError: A GPU lacks a format of the graph.
    """
    found = formats_in(model)
    for capability in capabilities:
        if lacks := lacking(capability, found):
            what = f"GPUs of compute capability {capability} have no {' and no '.join(lacks)}"
            raise TargetError(what, hint=f"change `{option}`, or choose another scheme or body")


def write_graph(model: ir.Model, folder: Path) -> Path:
    """Write the graph, with a name on every layer: an engine's list of layers speaks of nodes by their names."""
    for layer in find_layers(model):
        layer.node.name = layer.name
    return write_model(model, folder)


def emulated(artifact: Artifact, folder: Path, *, threads: int) -> Runtime:
    """The graph that goes into the engine in ONNX Runtime, to be computed as it is written: FP16 and BF16 as rounded FP32."""
    path = folder / artifact.main
    model = read_model(path)
    if not round_halves(model):
        return Runtime(path, threads=threads, optimize=False)
    return Runtime(model, folder=folder, threads=threads, optimize=False)


def listing_in(path: Path) -> tuple[EngineLayer, ...]:
    """The list of an engine's layers that was written when it was built.

    Raises:
        TargetError: It is missing or damaged.
    """
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise TargetError(f"cannot be read: {error}", where=str(path), hint="export the model again") from error


def audit_engines(artifact: Artifact, folder: Path, plan: PrecisionPlan, listings: Mapping[str, Sequence[EngineLayer]]) -> Audit:
    """What each product of the plan was compiled to; the engines for all compute capabilities must agree.

    Args:
        artifact: What was exported.
        folder: Where its graph is.
        plan: What was planned.
        listings: Compute capability -> the list of layers of its engine.
    """
    products = products_of(read_model(folder / MODEL_FILE))
    rows = []
    for choice in plan.layers:
        found = {c: kernel_of(listing, products[choice.layer]) for c, listing in listings.items()}
        runs = {c: pair[1] for c, pair in found.items()}
        wrong = next((c for c, r in runs.items() if r != choice.format), None)
        capability = next(iter(found)) if wrong is None else wrong
        kernel = found[capability][0] + (f" on {capability}" if len(found) > 1 and wrong is not None else "")
        rows.append(AuditRow(layer=choice.layer, planned=choice.format, runs=runs[capability], kernel=kernel, agrees=wrong is None))
    return Audit(target=artifact.target, scheme=artifact.scheme, rows=tuple(rows))
