"""Tensors of the FP32 model, batch by batch: computed once, kept in memory up to a limit and in files beyond it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.parallel import ordered_map
from quant.data.batches import Batch
from quant.graph.behind import name_of, values_behind
from quant.graph.probes import add_outputs
from quant.graph.runtime import Runtime

if TYPE_CHECKING:
    from quant.sensitivity import Subject

Array = npt.NDArray[Any]


class Spool:
    """What the FP32 model makes of every batch.

    Args:
        subject: The model and its samples.
        folder: An empty folder for what does not fit into memory.
        memory: Bytes that may be held.
    """

    def __init__(self, subject: Subject, folder: Path, *, memory: int) -> None:
        self._subject, self._folder, self._left = subject, folder, memory
        self._held: list[dict[str, Array | Path]] = []
        self._known: set[str] = set()
        self._lock = Lock()

    def want(self, names: Collection[str]) -> None:
        """Compute `names`, and the outputs of the model, if they are not there yet, in one pass over the samples."""
        with self._lock:
            missing = sorted(set(names) - self._known)
            if missing or not self._held:
                self._compute(missing)

    def _compute(self, missing: list[str]) -> None:
        model = self._subject.model.clone()
        outputs = [str(v.name) for v in model.graph.outputs]
        inputs = {str(v.name) for v in model.graph.inputs}
        add_outputs(model, [name for name in missing if name not in inputs])
        runtime = Runtime(model, folder=self._subject.folder, optimize=False)
        wanted = [name for name in dict.fromkeys([*([] if self._held else outputs), *missing]) if name not in inputs]
        first = not self._held

        def compute(batch: Batch) -> dict[str, Array]:
            return {**batch.feed, **runtime.run(batch.feed, wanted)}

        for number, found in enumerate(ordered_map(compute, self._subject.batches())):
            if first:
                self._held.append({})
            for name, array in found.items():
                self._keep(number, name, array)
        self._known.update(missing, outputs, inputs)

    def _keep(self, number: int, name: str, array: Array) -> None:
        if name in self._held[number]:
            return
        if array.nbytes <= self._left:
            self._left -= array.nbytes
            self._held[number][name] = array
            return
        path = self._folder / f"{len(self._held[number])}-{number}.npy"
        np.save(path, array, allow_pickle=False)
        self._held[number][name] = path

    def __iter__(self) -> Iterator[tuple[Batch, Mapping[str, Array]]]:
        """(batch, its tensors), those in files mapped."""
        for batch, held in zip(self._subject.batches(), self._held, strict=True):
            yield batch, _Mapped(held)


class _Mapped(dict[str, Array]):
    """Tensors of a batch, opened as they are asked for."""

    def __init__(self, held: Mapping[str, Array | Path]) -> None:
        super().__init__()
        self._files = held

    def __missing__(self, name: str) -> Array:
        held = self._files[name]
        return np.load(held, mmap_mode="r", allow_pickle=False) if isinstance(held, Path) else held


def likely_inputs(model: ir.Model, layers: Collection[str]) -> set[str]:
    """Tensors that the parts behind `layers` read from the rest of the graph."""
    nodes = {name_of(node): node for node in model.graph}
    found: set[str] = set()
    for layer in layers:
        found |= values_behind(model, nodes[layer])
    return found
