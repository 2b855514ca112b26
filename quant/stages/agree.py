"""agree: an engine against the plain ONNX meaning of the graph that it was given, and where it begins to part from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import onnx_ir as ir

from evaluators.agreement import Agreement, AgreementMeter, OutputAgreement
from quant.core.parallel import ordered_map
from quant.data.batches import batches, safe_batch_size
from quant.data.first import FirstSamples
from quant.data.samples import Sample, Samples
from quant.graph.plain import coarse, plain
from quant.graph.unrounded import without_rounding
from quant.stages.part import find_parting
from quant.stages.running import Array, Feeding, Outputs, Run, inputs_from_data, steps

Feed = Mapping[str, Array]
Load = Callable[[ir.Model, Path], Run]
"""Exports a graph into an empty folder, loads it into an engine, and gives what runs it."""

_STEPS = 16
"""Steps of each sequence that a stateful model is compared on."""
_KEEP_BYTES = 256 << 20


def feeds_of(samples: Samples, feeding: Feeding, run: Run, *, most: int) -> list[dict[str, Array]]:
    """The first `most` samples as batches that go into the model whole.

    A stateful model is asked for the first steps of each sequence, every one with the state that `run` arrives at before it.
    """
    first = FirstSamples(samples, most)
    if feeding.state:
        return [{**whole} for sample in first for whole in _states(run, sample, feeding)]
    size = safe_batch_size(feeding.signature, min(feeding.batch_size, most), batch_axes=feeding.batch_axes)
    return [batch.feed for batch in batches(first, inputs_from_data(feeding).inputs, batch_size=size, batch_axes=feeding.batch_axes)]


def _states(run: Run, sample: Sample, feeding: Feeding) -> Iterator[Mapping[str, Array]]:
    return (whole for whole, _ in islice(steps(run, sample, feeding), _STEPS))


def outputs_of(run: Run, feeds: Sequence[Feed]) -> list[Outputs]:
    """The outputs for the first of `feeds`: as many as fit into 256 MiB, one at least."""
    found: list[Outputs] = []
    room = _KEEP_BYTES
    for outputs in ordered_map(run, feeds):
        found.append(outputs)
        room -= sum(array.nbytes for array in outputs.values())
        if room <= 0:
            break
    return found


@dataclass(frozen=True)
class Meaning:
    """What a graph means on some inputs.

    Args:
        graph: File of the graph.
        feeds: The inputs.
        exact: Outputs without the format's noise: of the FP32 model, or of the graph without rounding.
        reference: Outputs in plain ONNX arithmetic.
        rough: Outputs with all roundings that an engine may do; None where those are the reference's.
    """

    graph: Path
    feeds: Sequence[Feed]
    exact: Sequence[Outputs]
    reference: Sequence[Outputs]
    rough: Sequence[Outputs] | None = None

    @classmethod
    def of(cls, graph: Path, feeds: Sequence[Feed], exact: Sequence[Outputs] | None = None) -> Meaning:
        """The meaning of `graph`; without `exact`, the noise of the format is that of rounding alone, which says nothing of clipped ranges.

        Raises:
            ModelError: ONNX Runtime cannot run the graph as it is written.
        """
        reference = outputs_of(plain(graph).run, feeds)
        if exact is None:
            exact = outputs_of(without_rounding(graph, weights=True).run, feeds[: len(reference)])
        kept = min(len(reference), len(exact))
        runtime = coarse(graph)
        rough = None if runtime is None else outputs_of(runtime.run, feeds[:kept])
        return cls(graph, feeds[:kept], exact[:kept], reference[:kept], rough)

    def compare(self, run: Run) -> tuple[OutputAgreement, ...]:
        """Every output of an engine against this."""
        meter = AgreementMeter()
        rough = self.reference if self.rough is None else self.rough
        for exact, reference, most, found in zip(self.exact, self.reference, rough, ordered_map(run, self.feeds), strict=True):
            meter.add(exact, reference, found, coarse=most)
        return meter.result()


def agree(meaning: Meaning, run: Run, load: Load, *, samples: int) -> Agreement:
    """An engine against the meaning of its graph; where it does not agree, the first layer where it parts.

    Args:
        meaning: What the graph means.
        run: The engine, loaded with that graph.
        load: Loads the engine with the same graph, other tensors given out.
        samples: Number of samples in the inputs.
    """
    outputs = meaning.compare(run)
    off = [found for found in outputs if not found.agrees]
    parting = find_parting(meaning.graph, meaning.feeds, load, off=off) if off else None
    return Agreement(agrees=not off, samples=samples, outputs=outputs, parting=parting)
