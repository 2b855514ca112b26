"""Rungs of a ladder, one after the other: what each gives, and how that compares with the rungs before."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evaluators.agreement import Agreement
from evaluators.fidelity import Fidelity, FidelityMeter
from quant.errors import DataError, QuantError
from quant.graph.model import read_model, write_model
from quant.graph.runtime import Optimize, Runtime
from quant.report.ladder import Rung
from quant.stages.agree import Load, Meaning, agree, outputs_of
from quant.stages.running import Outputs, Run

Missed = Literal["refused", "not available", "not applicable"]


@dataclass
class Climb:
    """The rungs so far.

    Args:
        output: The output that closeness is shown of.
        samples: Number of samples.
    """

    output: str
    samples: int
    rungs: list[Rung] = field(default_factory=list)
    _outputs: dict[str, Sequence[Outputs]] = field(default_factory=dict)

    def stand(self, name: str, outputs: Sequence[Outputs], *, before: str = "", agreement: Agreement | None = None, same_as: str = "") -> None:
        """A rung with these outputs."""
        self._outputs[name] = outputs
        first = self.rungs[0].name if self.rungs else ""
        closeness = [self._closeness(of, name) if of else None for of in (before, first)]
        rung = Rung(name=name, before=before, to_before=closeness[0], to_first=closeness[1], agreement=agreement, same_as=same_as)
        self.rungs.append(rung)

    def step(self, name: str, meaning: Meaning, load: Load, *, before: str, start: Callable[[], Run] | None = None) -> None:
        """A rung that runs in an engine, which may refuse it.

        Args:
            name: What it is.
            meaning: What it should compute.
            load: Loads the engine with any form of the graph.
            before: The rung that it is compared with.
            start: Loads the engine with the graph itself, if that is there already.
        """
        with tempfile.TemporaryDirectory() as scratch:
            try:
                run = load(read_model(meaning.graph), Path(scratch) / "engine") if start is None else start()
                outputs = outputs_of(run, meaning.feeds)
            except QuantError as error:
                self.miss(name, before=before, reason=" ".join(error.what.split()))
                return
            # What gives the same bits where another rung already parts, parts there as well; it need not be looked for twice.
            twin = next((r for r in self.rungs if r.parts and _same(self._outputs[r.name], outputs)), None)
            found = twin.agreement if twin is not None else agree(meaning, run, load, samples=self.samples)
            self.stand(name, outputs, before=before, agreement=found, same_as=twin.name if twin is not None else "")

    def miss(self, name: str, *, before: str, reason: str, status: Missed = "refused") -> None:
        """A rung that cannot be stood on."""
        self.rungs.append(Rung(name=name, before=before, status=status, reason=reason))

    def _closeness(self, first: str, second: str) -> Fidelity | None:
        """Closeness of the shown output; None without one, or where it is not finite."""
        meter = FidelityMeter()
        for one, other in zip(self._outputs.get(first, ()), self._outputs.get(second, ()), strict=False):
            for row, its in zip(_rows(one, self.output), _rows(other, self.output), strict=False):
                if not (np.isfinite(row).all() and np.isfinite(its).all()):
                    return None
                meter.add(row, its)
        try:
            return meter.result()
        except DataError:  # there was no output to compare
            return None


def _rows(outputs: Outputs, name: str) -> Sequence[npt.NDArray[Any]]:
    array = outputs.get(name)
    return () if array is None else list(array) if array.ndim > 1 else [array]


def _same(first: Sequence[Outputs], second: Sequence[Outputs]) -> bool:
    """Whether two rungs gave the same bits; they may have other outputs besides."""
    common = [(one[name], other[name]) for one, other in zip(first, second, strict=False) for name in one if name in other]
    return bool(common) and all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in common)


def runtime(optimize: Optimize) -> Load:
    """What loads a graph into ONNX Runtime, with these of its optimizations."""
    return lambda model, folder: Runtime(write_model(model, folder), optimize=optimize).run
