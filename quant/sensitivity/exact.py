"""`exact`: one layer at a time, in the very graph that a plan with this layer alone is written as.

Calibration is shared, and so is everything that such a plan does not change: the FP32 model runs once and its tensors are kept;
of each quantized graph only the part behind the change is computed, by ONNX Runtime as ONNX defines it (optimizations off). A model
that remembers is run whole, step by step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from pydantic import Field

from quant.core.parallel import ordered_map
from quant.core.progress import progress
from quant.core.registry import Options as PluginOptions
from quant.core.sensitivity import ALL_LAYERS, Effect, Part
from quant.graph.behind import changed_nodes, keep_only
from quant.graph.runtime import Runtime
from quant.sensitivity import ESTIMATORS, Found
from quant.sensitivity.measuring.outputs import compare
from quant.sensitivity.measuring.parts import filled_up, part_graphs
from quant.sensitivity.measuring.spool import Spool, likely_inputs
from quant.sensitivity.measuring.sums import Shares

if TYPE_CHECKING:
    from quant.sensitivity import Subject

_MIB = 1 << 20


@ESTIMATORS.add
class Exact:
    """One layer at a time, on the real quantized graph."""

    kind: ClassVar[str] = "exact"

    class Options(PluginOptions):
        """Options of `exact`."""

        parts: bool = True
        """Also measure weights alone and activations alone, which takes three times as long."""
        joint: bool = True
        """Also measure all layers of a format at once."""
        memory_mib: int = Field(1024, ge=0)
        """Tensors of the FP32 model that are held in memory; what goes beyond it lies in files while effects are measured."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def estimate(self, subject: Subject) -> Found:
        """Run every candidate."""
        with tempfile.TemporaryDirectory(prefix="quant-exact-") as folder:
            spool = Spool(subject, Path(folder), memory=self.options.memory_mib * _MIB)
            names = {name for names in subject.candidates.values() for name in names}
            if not subject.remembers:
                spool.want(likely_inputs(subject.model, names))
            work = [(f, layer) for f, layers in subject.candidates.items() for layer in layers]
            effects: list[Effect] = []
            measured = Shares(subject.measures.weights)
            with progress("measuring layers one at a time", len(work)) as advance:

                def one(item: tuple[str, str]) -> tuple[list[Effect], Shares]:
                    return self._layer(subject, spool, *item)

                for found, shares in ordered_map(one, work):
                    effects += found
                    measured = shares
                    advance(1)
            joint = [self._joint(subject, spool, f, layers) for f, layers in subject.candidates.items() if self.options.joint and layers]
        return Found(effects, measured.count, measured.reference, joint)

    def _layer(self, subject: Subject, spool: Spool, number_format: str, layer: str) -> tuple[list[Effect], Shares]:
        found: dict[Part, Effect] = {}
        whole: ir.Model | None = None
        shares = Shares(subject.measures.weights)
        for part, graph in part_graphs(subject, number_format, layer, parts=self.options.parts):
            whole = whole or graph.clone()
            shares = _measured(subject, spool, graph)
            value, error = shares.value()
            found[part] = Effect(layer=layer, format=number_format, part=part, value=value, standard_error=error)
        assert whole is not None, "a layer is always written whole"
        return filled_up(subject, found, whole) if self.options.parts else list(found.values()), shares

    @staticmethod
    def _joint(subject: Subject, spool: Spool, number_format: str, layers: Any) -> Effect:
        value, error = _measured(subject, spool, subject.write(number_format, layers)).value()
        return Effect(layer=ALL_LAYERS, format=number_format, value=value, standard_error=error)


def _measured(subject: Subject, spool: Spool, graph: ir.Model) -> Shares:
    """How far the outputs of `graph` are from FP32's."""
    shares = Shares(subject.measures.weights)
    rows = _stepped(subject, graph) if subject.remembers else _shared(subject, spool, graph)
    for errors, signals in rows:
        shares.add(errors, signals)
    return shares


def _shared(subject: Subject, spool: Spool, graph: ir.Model) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Errors of each batch, of which only what changed is computed."""
    changed = changed_nodes(subject.model, graph)
    inputs = keep_only(graph, changed)
    runtime = Runtime(graph, folder=subject.folder, optimize=False) if graph.graph.outputs else None
    spool.want(inputs)
    for batch, tensors in spool:
        found = runtime.run({name: tensors[name] for name in inputs}) if runtime is not None else {}
        yield subject.measures.errors(found, tensors, batch)


def _stepped(subject: Subject, graph: ir.Model) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Errors of each step of a model that remembers."""
    exact, ours = (Runtime(model, folder=subject.folder, optimize=False) for model in (subject.model, graph))
    for wanted, found in zip(subject.steps(exact.run), subject.steps(ours.run), strict=True):
        pairs = [compare(m, found[m.output][None], wanted[m.output][None], None) for m in subject.measures.chosen]
        yield np.stack([error for error, _ in pairs], axis=1), np.stack([signal for _, signal in pairs], axis=1)
