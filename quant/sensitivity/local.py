"""`local`: what each layer does to its own output, as a share of that output's square; the cheapest, and it tells nothing of the model's outputs.

A share of 0.01 is a signal-to-quantization-noise ratio of 20 dB.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.parallel import ordered_map
from quant.core.progress import progress
from quant.core.registry import Options as PluginOptions
from quant.core.sensitivity import Effect, Part
from quant.data.batches import Batch
from quant.graph.behind import changed_nodes, keep_only, name_of, nodes_before
from quant.graph.runtime import Runtime
from quant.sensitivity import ESTIMATORS, Found
from quant.sensitivity.measuring.parts import filled_up, part_graphs
from quant.sensitivity.measuring.spool import Spool
from quant.sensitivity.measuring.sums import Shares

if TYPE_CHECKING:
    from quant.sensitivity import Subject

_MEMORY = 1 << 30


@ESTIMATORS.add
class Local:
    """Each layer's own output error."""

    kind: ClassVar[str] = "local"

    class Options(PluginOptions):
        """Options of `local`."""

        parts: bool = True
        """Also measure weights alone and activations alone."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def estimate(self, subject: Subject) -> Found:
        """Compute every candidate by itself, on what the FP32 model gives it."""
        if subject.remembers:
            return Found((), 0, failed=dict.fromkeys(subject.candidates, "the model remembers from step to step"))
        nodes = {name_of(node): node for node in subject.model.graph}
        work = [(f, layer) for f, layers in subject.candidates.items() for layer in layers]
        with tempfile.TemporaryDirectory(prefix="quant-local-") as folder:
            spool = Spool(subject, Path(folder), memory=_MEMORY)
            spool.want({str(v.name) for _, layer in work for v in (*_computed(nodes[layer]), *_ends(nodes[layer]))})

            def one(item: tuple[str, str]) -> tuple[list[Effect], Shares]:
                return self._layer(subject, spool, nodes[item[1]], item[0])

            effects: list[Effect] = []
            count = 0
            with progress("measuring layers by themselves", len(work)) as advance:
                for found, shares in ordered_map(one, work):
                    effects += found
                    count = shares.count
                    advance(1)
        return Found(effects, count, measure="local_error")

    def _layer(self, subject: Subject, spool: Spool, node: ir.Node, number_format: str) -> tuple[list[Effect], Shares]:
        found: dict[Part, Effect] = {}
        whole: ir.Model | None = None
        shares = Shares([1.0])
        for part, graph in part_graphs(subject, number_format, name_of(node), parts=self.options.parts):
            whole = whole or graph.clone()
            shares = _measured(subject, spool, graph, node)
            value, error = shares.value()
            found[part] = Effect(layer=name_of(node), format=number_format, part=part, value=value, standard_error=error)
        assert whole is not None, "a layer is always written whole"
        return filled_up(subject, found, whole) if self.options.parts else list(found.values()), shares


def _computed(node: ir.Node) -> list[ir.Value]:
    return [v for v in node.inputs if v is not None and not v.is_initializer()]


def _ends(node: ir.Node) -> list[ir.Value]:
    """What a layer gives, or what the only node that reads it makes of that: an Add that melts into it."""
    own = node.outputs[0]
    readers = [reader for reader, _ in own.uses()]
    return [own, readers[0].outputs[0]] if len(readers) == 1 and readers[0].op_type == "Add" and not own.is_graph_output() else [own]


def _measured(subject: Subject, spool: Spool, graph: ir.Model, node: ir.Node) -> Shares:
    """How far what the layer gives in `graph` is from what it gives in FP32."""
    values = {str(v.name): v for n in graph.graph for v in n.outputs}
    end = next(v for v in _ends(node) if v.name in values)
    value = values[str(end.name)]
    rounded = _behind_rounding(value)
    kept = changed_nodes(subject.model, graph) & nodes_before(graph, rounded)
    inputs = keep_only(graph, kept, [str(rounded.name)])
    spool.want([*inputs, str(end.name)])
    runtime = Runtime(graph, folder=subject.folder, optimize=False) if graph.graph.outputs else None
    shares = Shares([1.0])
    for batch, tensors in spool:
        wanted = tensors[str(end.name)]
        found = wanted if runtime is None else runtime.run({name: tensors[name] for name in inputs})[str(rounded.name)]
        shares.add(*(_rows(np.square(x), batch) for x in (found.astype(np.float64) - wanted, wanted.astype(np.float64))))
    return shares


def _behind_rounding(value: ir.Value) -> ir.Value:
    """What stands for `value` where everybody reads it rounded."""
    for op in ("QuantizeLinear", "DequantizeLinear"):
        readers = {reader for reader, _ in value.uses()}
        if len(readers) != 1 or value.is_graph_output() or next(iter(readers)).op_type != op:
            break
        value = next(iter(readers)).outputs[0]
    return value


def _rows(squares: npt.NDArray[np.float64], batch: Batch) -> npt.NDArray[np.float64]:
    """Sums of each feed, `[feeds, 1]`; of all together where the first axis is not theirs."""
    if squares.ndim and squares.shape[0] % batch.rows == 0:
        return np.asarray(squares.reshape(batch.rows, -1).sum(axis=1)[: len(batch.owners), None])
    return np.asarray(squares.sum().reshape(1, 1))
