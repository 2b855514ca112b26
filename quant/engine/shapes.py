"""Shapes that the data give to a model's inputs: what an engine that is built ahead of time is built for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from quant.core.signature import TensorSpec
from quant.data.adapt import data_inputs
from quant.data.batches import fixed_batch
from quant.data.checks import batch_axis
from quant.data.samples import Samples
from quant.stages.running import Feeding
from quant.targets import Shapes

Lengths = list[tuple[int, ...]]


def input_shapes(roles: Iterable[Samples], feeding: Feeding, *, usual_batch: int) -> dict[str, Shapes]:
    """Shapes of every input that has a dimension of no fixed length.

    Lengths come from all samples of `roles`: the least, the median and the largest along each axis. Batches have from 1 to
    `feeding.batch_size` samples. Samples are not looked at where only the batch axis is free.

    Args:
        roles: The samples that the engine is to run.
        feeding: How samples go into the model, and the largest batch.
        usual_batch: Samples in a usual batch.
    """
    inputs = data_inputs(feeding.signature, set(feeding.state))
    open_inputs = [spec for spec in inputs if _is_open(spec)]
    looked_at = [spec for spec in open_inputs if spec.shape is None or any(isinstance(d, str) for d in _without_batch(spec, feeding))]
    seen = _lengths(roles, looked_at) if looked_at else {}
    fixed = fixed_batch(inputs, feeding.batch_axes)
    batch = (fixed, fixed, fixed) if fixed is not None else (1, min(usual_batch, feeding.batch_size), feeding.batch_size)
    found = {}
    for spec in open_inputs:
        lengths = seen.get(spec.name) or [tuple(int(d) for d in _without_batch(spec, feeding))]
        found[spec.name] = _with_batch(spec, feeding, lengths, batch)
    states = [spec for spec in feeding.signature.inputs if spec.name in feeding.state and _is_open(spec)]
    for spec in states:
        zero = tuple(d if isinstance(d, int) else 1 for d in spec.shape or ())
        found[spec.name] = Shapes(zero, zero, zero)
    return found


def _is_open(spec: TensorSpec) -> bool:
    return spec.shape is None or any(isinstance(d, str) for d in spec.shape)


def _without_batch(spec: TensorSpec, feeding: Feeding) -> list[int | str]:
    axis = batch_axis(spec, feeding.batch_axes)
    return [d for i, d in enumerate(spec.shape or ()) if i != axis]


def _lengths(roles: Iterable[Samples], inputs: Iterable[TensorSpec]) -> Mapping[str, Lengths]:
    """Input -> shapes of its arrays in all feeds, without batch axis."""
    names = [spec.name for spec in inputs]
    seen: dict[str, Lengths] = {name: [] for name in names}
    for samples in roles:
        for sample in samples:
            for feed in sample.feeds:
                for name in names:
                    seen[name].append(np.shape(feed[name]))
    return seen


def _with_batch(spec: TensorSpec, feeding: Feeding, lengths: Lengths, batch: tuple[int, int, int]) -> Shapes:
    table = np.asarray(lengths, np.int64).reshape(len(lengths), -1)
    three = [table.min(axis=0), np.percentile(table, 50, axis=0, method="higher"), table.max(axis=0)]
    axis = batch_axis(spec, feeding.batch_axes)
    shapes = [[int(n) for n in row] for row in three]
    if axis is not None:
        for shape, length in zip(shapes, batch, strict=True):
            shape.insert(axis, length)
    return Shapes(*map(tuple, shapes))
