"""What a sketch looks at first: a few rows of a batch, and how large outputs are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quant.core.parallel import ordered_map
from quant.data.batches import Batch, fixed_batch
from quant.data.checks import batch_axis
from quant.errors import DataError
from quant.graph.runtime import Runtime

if TYPE_CHECKING:
    from quant.sensitivity import Subject

_FEW = 2


def first_rows(subject: Subject) -> Batch:
    """Two feeds that run together, or one where no two do; a whole batch where its length is fixed.

    Raises:
        DataError: There are no samples.
    """
    first = None
    for batch in subject.batches():
        first = first or batch
        if batch.rows >= _FEW:
            first = batch
            break
    if first is None:
        raise DataError("there are no samples to measure sensitivity on", hint="give the roles `search` or `calibration` samples")
    axes = {spec.name: batch_axis(spec, subject.measures.batch_axes) for spec in subject.signature.inputs}
    if first.rows <= _FEW or fixed_batch(subject.signature.inputs, axes) is not None:
        return first
    feed = {name: array if axes[name] is None else np.take(array, range(_FEW), axis=axes[name]) for name, array in first.feed.items()}
    return Batch(feed, first.owners[:_FEW], _FEW)


def mean_squares(subject: Subject) -> dict[str, float]:
    """Output -> mean over feeds of its squared elements, summed up; 1 where errors are no shares of it."""
    runtime = Runtime(subject.model.clone(), folder=subject.folder)
    total, count = np.zeros(len(subject.measures.chosen)), 0
    for batch, outputs in ordered_map(lambda batch: (batch, runtime.run(batch.feed)), subject.batches()):
        total += subject.measures.errors({}, outputs, batch)[1].sum(axis=0)
        count += len(batch.owners)
    return {m.output: float(t / count) or 1.0 for m, t in zip(subject.measures.chosen, total, strict=True)}
