"""Batches: feeds stacked along the batch axis, and outputs taken apart again.

Only feeds of equal shapes share a batch, so that nothing is padded unless the processor pads. Feeds are looked at through
a bounded window; the order of batches depends on the samples alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quant.core.digest import digest_of_arrays
from quant.core.signature import Signature, TensorSpec
from quant.data.checks import BatchAxes, batch_axis, check_feed, check_finite
from quant.data.samples import Array, Feed, Samples
from quant.errors import DataError

_WINDOW_BATCHES = 64

Owner = tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """Feeds that run together.

    Args:
        feed: Input -> array with its batch axis.
        owners: (position of the sample, number of its feed) for each real row; rows beyond them fill a fixed batch.
        rows: Rows along the batch axis, filling included.
    """

    feed: dict[str, Array]
    owners: tuple[Owner, ...]
    rows: int


@dataclass(frozen=True)
class _Pending:
    owner: Owner
    feed: Feed


def batches(samples: Samples, signature_inputs: Sequence[TensorSpec], *, batch_size: int, batch_axes: BatchAxes | None = None) -> Iterator[Batch]:
    """The feeds of `samples` in batches, each checked against the inputs and against NaN on the way.

    A batch holds at most `batch_size` feeds; exactly N where the model's batch axis has the fixed length N (a batch that is
    not full is filled by repeating its last feed). Inputs without a batch axis go in as they are: only feeds with equal values
    share a batch, and a model without any batch axis gets one feed at a time. Where `samples` has `pad_values`, these
    inputs are filled up to the longest of the batch.

    Args:
        samples: The samples of a role.
        signature_inputs: The model's inputs that data feed (no state inputs).
        batch_size: Feeds in a batch.
        batch_axes: Input -> its batch axis; None for an input without one; 0 for those not named.

    Raises:
        DataError: A feed does not fit the model, or holds NaN or infinity; the message names the sample.
    """
    axes = {spec.name: batch_axis(spec, batch_axes or {}) for spec in signature_inputs}
    size, exact = _size(signature_inputs, axes, batch_size)
    pads: Mapping[str, int | float] = getattr(samples, "pad_values", {})
    groups: dict[Any, list[_Pending]] = {}
    waiting = 0
    for pending in _feeds(samples, signature_inputs, batch_axes):
        key = _key(pending.feed, axes, pads)
        group = groups.setdefault(key, [])
        group.append(pending)
        waiting += 1
        if len(group) == size:
            yield _batch(groups.pop(key), axes, pads, exact)
            waiting -= size
        elif waiting >= _WINDOW_BATCHES * size:
            oldest = groups.pop(min(groups, key=lambda k: groups[k][0].owner))
            yield _batch(oldest, axes, pads, exact)
            waiting -= len(oldest)
    for group in sorted(groups.values(), key=lambda g: g[0].owner):
        yield _batch(group, axes, pads, exact)


def _feeds(samples: Samples, inputs: Sequence[TensorSpec], batch_axes: BatchAxes | None) -> Iterator[_Pending]:
    for position, sample in enumerate(samples):
        for number, feed in enumerate(sample.feeds):
            check_feed(feed, inputs, sample_index=sample.index, batch_axes=batch_axes)
            check_finite(feed, sample.index)
            yield _Pending((position, number), feed)


def _size(inputs: Sequence[TensorSpec], axes: BatchAxes, wanted: int) -> tuple[int, int | None]:
    """The number of feeds in a batch, and the fixed number of rows if the model has one."""
    if all(axis is None for axis in axes.values()):
        return 1, None
    fixed = fixed_batch(inputs, axes)
    return (wanted, None) if fixed is None else (fixed, fixed)


def fixed_batch(inputs: Sequence[TensorSpec], batch_axes: BatchAxes) -> int | None:
    """The length that the model's batch axis is fixed to; None when it is free.

    Raises:
        DataError: Two inputs are fixed to different lengths.
    """
    lengths: dict[str, int] = {}
    for spec in inputs:
        axis = batch_axis(spec, batch_axes)
        if axis is not None and spec.shape and isinstance(length := spec.shape[axis], int):
            lengths[spec.name] = length
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"the batch axes of the model's inputs have different fixed lengths: {lengths}", hint="say which axis is the batch with `model.batch_axes`"
        )
    return next(iter(lengths.values()), None)


def _key(feed: Feed, axes: BatchAxes, pads: Mapping[str, int | float]) -> Any:
    shapes = tuple((name, array.shape[:-1] if name in pads else array.shape, array.dtype.str) for name, array in sorted(feed.items()))
    constants = {name: array for name, array in feed.items() if axes.get(name, 0) is None}
    return shapes, digest_of_arrays(constants) if constants else ""


def _batch(group: list[_Pending], axes: BatchAxes, pads: Mapping[str, int | float], exact: int | None) -> Batch:
    owners = tuple(pending.owner for pending in group)
    feeds = [pending.feed for pending in group]
    feeds += feeds[-1:] * ((exact or 0) - len(feeds))
    feed: dict[str, Array] = {}
    for name in feeds[0]:
        axis = axes.get(name, 0)
        arrays = [np.asarray(f[name]) for f in feeds]
        feed[name] = arrays[0] if axis is None else np.stack(_padded(arrays, pads[name]) if name in pads else arrays, axis=axis)
    return Batch(feed, owners, len(feeds))


def _padded(arrays: list[Array], value: float) -> list[Array]:
    longest = max(array.shape[-1] for array in arrays)
    return [np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, longest - a.shape[-1])], constant_values=value) for a in arrays]


def output_axes(signature: Signature, batch_axes: BatchAxes | None = None) -> dict[str, int | None]:
    """Output -> the axis along which it holds one entry for each row of a batch; None when it has none.

    An output's batch axis is the one whose symbol is that of an input's batch axis; where symbols do not tell, the first axis,
    unless its length is fixed to something else than the inputs' batch.
    """
    axes = batch_axes or {}
    symbols = {spec.shape[axis] for spec in signature.inputs if spec.shape and (axis := batch_axis(spec, axes)) is not None}
    if not symbols and all(batch_axis(spec, axes) is None for spec in signature.inputs):
        return {spec.name: None for spec in signature.outputs}
    return {spec.name: _output_axis(spec, symbols) for spec in signature.outputs}


def _output_axis(spec: TensorSpec, symbols: set[int | str]) -> int | None:
    if spec.shape is None:
        return 0
    if not spec.shape:
        return None
    for axis, length in enumerate(spec.shape):
        if isinstance(length, str) and length != "?" and length in symbols:
            return axis
    first = spec.shape[0]
    return 0 if isinstance(first, str) or first in symbols else None


def safe_batch_size(signature: Signature, wanted: int, *, batch_axes: BatchAxes | None = None) -> int:
    """`wanted`, or 1 where an output has no batch axis and so cannot be told apart by sample."""
    return wanted if all(axis is not None for axis in output_axes(signature, batch_axes).values()) else 1


def split_outputs(outputs: Mapping[str, Array], batch: Batch, output_batch_axes: BatchAxes) -> list[dict[str, Array]]:
    """The outputs of each owner of `batch`, without the batch axis; what filled a fixed batch is dropped.

    An output without a batch axis (None) is given whole when the batch is one feed; with more feeds nobody could say
    whose it is, so that is refused (`safe_batch_size` avoids it).

    Args:
        outputs: Output -> array of the whole batch.
        batch: What went in.
        output_batch_axes: Output -> its batch axis (see `output_axes`); 0 for those not named.

    Raises:
        DataError: An output does not have one entry for each row of the batch.
    """
    found: list[dict[str, Array]] = [{} for _ in batch.owners]
    for name, array in outputs.items():
        axis = output_batch_axes.get(name, 0)
        if axis is None and batch.rows > 1:
            raise DataError(f"output {name!r} has no batch axis, so a batch of {batch.rows} feeds cannot be taken apart", hint="use batch_size: 1")
        if axis is not None and (array.ndim <= axis or array.shape[axis] != batch.rows):
            what = f"output {name!r} has shape {list(array.shape)}: not one entry along axis {axis} for each of the {batch.rows} rows of the batch"
            raise DataError(what, hint="use batch_size: 1, or say which axes are the batch with `model.batch_axes`")
        for row, mapping in enumerate(found):
            mapping[name] = array if axis is None else np.take(array, row, axis=axis)
    return found
