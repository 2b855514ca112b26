"""Running a model over samples: batches spread over threads, results sample by sample, the same whatever their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.parallel import ordered_map
from quant.core.signature import Signature
from quant.data.adapt import data_inputs, numpy_dtype
from quant.data.batches import Batch, batches, output_axes, safe_batch_size, split_outputs
from quant.data.checks import check_finite
from quant.data.samples import Sample, Samples
from quant.errors import DataError

Array = npt.NDArray[Any]
Outputs = dict[str, Array]
Run = Callable[[Mapping[str, Array]], Outputs]


@dataclass(frozen=True)
class Feeding:
    """How samples go into a model.

    Args:
        signature: The model's inputs and outputs.
        batch_size: Feeds in a batch, at most.
        state: State input -> the output that feeds it at the next step.
        batch_axes: Input -> its batch axis (None: it has none); 0 for those not named.
    """

    signature: Signature
    batch_size: int = 1
    state: Mapping[str, str] = field(default_factory=dict)
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)


def run_samples(run: Run, samples: Samples, feeding: Feeding) -> Iterator[tuple[int, list[Outputs]]]:
    """(position, one mapping of outputs for each feed) of every sample, each once; not always in the samples' order.

    Raises:
        DataError: A sample does not fit the model.
    """
    yield from _run_sequences(run, samples, feeding) if feeding.state else _run_batches(run, samples, feeding)


def _run_batches(run: Run, samples: Samples, feeding: Feeding) -> Iterator[tuple[int, list[Outputs]]]:
    size = safe_batch_size(feeding.signature, feeding.batch_size, batch_axes=feeding.batch_axes)
    axes = output_axes(feeding.signature, feeding.batch_axes)
    waiting: dict[int, dict[int, Outputs]] = {}
    stream = batches(samples, feeding.signature.inputs, batch_size=size, batch_axes=feeding.batch_axes)

    def compute(batch: Batch) -> tuple[Batch, Outputs]:
        return batch, run(batch.feed)

    for batch, outputs in ordered_map(compute, stream):
        for (position, number), found in zip(batch.owners, split_outputs(outputs, batch, axes), strict=True):
            parts = waiting.setdefault(position, {})
            parts[number] = found
            if len(parts) == len(samples[position].feeds):
                yield position, [parts[i] for i in range(len(parts))]
                del waiting[position]


def _run_sequences(run: Run, samples: Samples, feeding: Feeding) -> Iterator[tuple[int, list[Outputs]]]:
    """Each sample is a sequence: its feeds run one after the other, the state handed on."""

    def compute(item: tuple[int, Sample]) -> tuple[int, list[Outputs]]:
        return item[0], [outputs for _feed, outputs in steps(run, item[1], feeding)]

    yield from ordered_map(compute, enumerate(samples))


def steps(run: Run, sample: Sample, feeding: Feeding) -> Iterator[tuple[Mapping[str, Array], Outputs]]:
    """(what went in, what came out without batch axis) of each step of a stateful model over one sequence."""
    state = {spec.name: zero_state(spec.name, feeding) for spec in feeding.signature.inputs if spec.name in feeding.state}
    axes = output_axes(feeding.signature, feeding.batch_axes)
    for feed in sample.feeds:
        check_finite(feed, sample.index)
        whole = {**{k: _with_batch(k, v, feeding) for k, v in feed.items()}, **state}
        outputs = run(whole)
        state = {name: outputs[source] for name, source in feeding.state.items()}
        yield whole, {k: v if k in feeding.state.values() or axes.get(k, 0) is None else np.take(v, 0, axis=axes.get(k) or 0) for k, v in outputs.items()}


def _with_batch(name: str, array: Array, feeding: Feeding) -> Array:
    spec = next(s for s in feeding.signature.inputs if s.name == name)
    axis = feeding.batch_axes.get(name, 0)
    return array if axis is None or spec.shape is None or array.ndim >= len(spec.shape) else np.expand_dims(array, axis)


def zero_state(name: str, feeding: Feeding) -> Array:
    """The state before the first step: zeros, one sequence wide.

    Raises:
        DataError: The state's shape is not known.
    """
    spec = next(s for s in feeding.signature.inputs if s.name == name)
    dtype = numpy_dtype(spec.dtype)
    if spec.shape is None or dtype is None:
        raise DataError(f"the state input {spec} has no known shape", hint="export the model with a shape for its state")
    return np.zeros([d if isinstance(d, int) else 1 for d in spec.shape], dtype)


def inputs_from_data(feeding: Feeding) -> Signature:
    """The signature without state inputs: what the data must feed."""
    return Signature(data_inputs(feeding.signature, set(feeding.state)), feeding.signature.outputs)
