"""Samples against a model's signature, before any work; and numbers against NaN and infinity, during it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from quant.core.registry import did_you_mean
from quant.core.signature import Signature, TensorSpec
from quant.data.adapt import data_inputs
from quant.data.record import ONLY_INPUT
from quant.data.samples import Array, Feed, Samples
from quant.errors import DataError

BatchAxes = Mapping[str, int | None]

_NOT_FED = "see `data.inputs`, or `model.state` for a state"
_LOOKED_AT = 4  # samples that are made before any work starts; all others are checked as they stream


def batch_axis(spec: TensorSpec, batch_axes: BatchAxes) -> int | None:
    """The batch axis of an input: what the recipe says, else 0; a scalar has none.

    Example:
        >>> batch_axis(TensorSpec("x", "float32", ("N", 3)), {}), batch_axis(TensorSpec("rate", "int64", ()), {})
        (0, None)
    """
    return None if spec.shape == () else batch_axes.get(spec.name, 0)


def check_samples(samples: Samples, signature: Signature, *, state_inputs: Collection[str] = (), batch_axes: BatchAxes | None = None) -> tuple[str, ...]:
    """Hold the first samples to the model's signature; gives what is worth saying.

    Raises:
        DataError: There are no samples; an input is missing, unknown, or of another type, rank or length than the model
            takes; a value is NaN or infinite.
    """
    if len(samples) == 0:
        raise DataError(f"{samples.role} has no samples")
    inputs = data_inputs(signature, state_inputs)
    feeds = 0
    for position in range(min(_LOOKED_AT, len(samples))):
        sample = samples[position]
        if not sample.feeds:
            raise DataError(f"sample {sample.index} of {samples.role} makes no feed")
        feeds += len(sample.feeds)
        for feed in sample.feeds:
            check_feed(feed, inputs, sample_index=sample.index, batch_axes=batch_axes)
            check_finite(feed, sample.index)
    looked = min(_LOOKED_AT, len(samples))
    return (f"{samples.role}: {feeds / looked:.3g} feeds to a sample",) if feeds > looked else ()


def check_feed(feed: Feed, inputs: Collection[TensorSpec], *, sample_index: int, batch_axes: BatchAxes | None = None) -> None:
    """Hold one feed to the inputs that data must feed.

    Raises:
        DataError: See `check_samples`.
    """
    _check_names(feed, inputs, sample_index)
    for spec in inputs:
        array = feed[spec.name]
        if not _same_type(array, spec.dtype):
            hint = f"ask the processor for it: `dtypes: {{{spec.name}: {spec.dtype}}}` (arrays) or `dtype: {spec.dtype}` (images)"
            raise DataError(f"sample {sample_index}: input {spec.name!r} is {array.dtype.name}, the model takes {spec.dtype}", hint=hint)
        _check_shape(array, spec, batch_axis(spec, batch_axes or {}), sample_index)


def _check_names(feed: Feed, inputs: Collection[TensorSpec], sample_index: int) -> None:
    taken = {spec.name for spec in inputs}
    if ONLY_INPUT in feed and ONLY_INPUT not in taken:
        hint = "name the input in the processor's options: one of " + ", ".join(sorted(taken))
        raise DataError(f"the processor does not say which of the model's {len(taken)} inputs it feeds", hint=hint)
    for name in feed:
        if name not in taken:
            raise DataError(f"sample {sample_index}: the model has no input {name!r}", hint=did_you_mean(name, sorted(taken)))
    for name in sorted(taken - set(feed)):
        made = ", ".join(map(repr, feed)) or "nothing"
        cache = "past_key" in name  # as every exporter of decoders calls what it keeps of earlier tokens
        hint = "export the decoder without a cache of keys and values (`use_cache=False`): a window is read whole" if cache else _NOT_FED
        raise DataError(f"sample {sample_index}: nothing feeds the model's input {name!r}; the data make {made}", hint=hint)


def _same_type(array: Array, dtype: str) -> bool:
    return array.dtype.name == dtype or (array.dtype.kind in "UO" and dtype in {"str", "string", "object"})


def _check_shape(array: Array, spec: TensorSpec, axis: int | None, sample_index: int) -> None:
    if spec.shape is None:
        return
    wanted = tuple(length for position, length in enumerate(spec.shape) if axis is None or position != axis % len(spec.shape))
    rest = "" if axis is None else " without the batch axis"
    shown = f"sample {sample_index}: input {spec.name!r} has shape {list(array.shape)}, the model takes [{', '.join(map(str, wanted))}]{rest}"
    if array.ndim != len(wanted):
        one_more = axis is not None and array.ndim == len(spec.shape)
        hint = (
            f"if the model has no batch axis there, say `model.batch_axes: {{{spec.name}: null}}`; else take that axis out of the samples" if one_more else ""
        )
        raise DataError(shown, hint=hint)
    if any(isinstance(length, int) and length != given for length, given in zip(wanted, array.shape, strict=True)):
        raise DataError(shown, hint="see the sizes in `data.inputs` (resize, crop, max_length, padding, columns)")


def check_finite(feed: Feed, sample_index: int) -> None:
    """Refuse NaN and infinities.

    Raises:
        DataError: There is one; the message names sample, input and position.

    Example:
        >>> check_finite({"x": np.float32([1, np.nan])}, 7)
        Traceback (most recent call last):
        ...
        quant.errors.DataError: sample 7: input 'x' is nan at [1]
        hint: mend or leave out this sample
    """
    for name, array in feed.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            position = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
            raise DataError(f"sample {sample_index}: input {name!r} is {array[tuple(position)]} at {position}", hint="mend or leave out this sample")
