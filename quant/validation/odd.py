"""Requests that are seldom tried before a deploy: single, many, the shortest, the longest, all zero, and the extremes of what the data hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np

from quant.data.batches import fixed_batch, safe_batch_size
from quant.data.checks import batch_axis
from quant.data.first import FirstSamples
from quant.data.samples import Feed, Samples
from quant.data.span import Span
from quant.engine.candidates import Workshop
from quant.stages.measure import requests
from quant.stages.running import Array, Feeding, inputs_from_data

_LOOKED_AT = 256
"""Samples whose values are looked at for extremes."""

_FILLED: Mapping[str, Callable[[Array, float, float], Array]] = {
    "all zero": lambda array, _low, _high: np.zeros_like(array),
    "all at the lowest value of the data": lambda array, low, _high: np.full_like(array, low),
    "all at the highest value of the data": lambda array, _low, high: np.full_like(array, high),
    "lowest and highest value in turns": lambda array, low, high: np.where(np.arange(array.size).reshape(array.shape) % 2, high, low).astype(array.dtype),
}


@dataclass(frozen=True)
class Odd:
    """A request and what it is called."""

    name: str
    feed: Mapping[str, Array]


def odd_requests(workshop: Workshop) -> tuple[Odd, ...]:
    """The odd requests for a model, made of its evaluation samples; the first is that of a single sample.

    Extremes are those that occur in the data: what never occurs, no model has to stand.
    """
    recipe = workshop.bound.loaded.recipe
    samples = workshop.prepared.data.roles["evaluation"]
    one = workshop.prepared.feeding(workshop.bound, 1)
    [usual] = requests(samples, one, most=1)
    most = max(recipe.evaluation.batch_size, recipe.calibration.batch_size, recipe.latency.batch_size)
    fed = [spec.name for spec in inputs_from_data(one).inputs]
    low, high, by_size = _seen(samples, one, fed)
    found = [Odd(_usual(one), usual), *_largest_batch(requests(samples, one, most=most), one, most), *by_size]
    for name, fill in _FILLED.items():
        found.append(Odd(name, {key: fill(array, low[key], high[key]) if key in low else array for key, array in usual.items()}))
    return tuple(found)


def _usual(feeding: Feeding) -> str:
    """What the request of a single sample is called: a model whose batch is fixed gets it repeated."""
    inputs = inputs_from_data(feeding).inputs
    fixed = fixed_batch(inputs, {spec.name: batch_axis(spec, feeding.batch_axes) for spec in inputs})
    return "batch 1" if fixed in {None, 1} else f"batch {fixed}, the only one that the model takes"


def _largest_batch(singles: Sequence[Mapping[str, Array]], feeding: Feeding, most: int) -> Iterator[Odd]:
    """One request of `most` samples that share their shape, over and over where there are fewer; none where a batch is one sample."""
    inputs = inputs_from_data(feeding).inputs
    axes = {spec.name: batch_axis(spec, feeding.batch_axes) for spec in inputs}
    single = all(axis is None for axis in axes.values()) or safe_batch_size(feeding.signature, most, batch_axes=feeding.batch_axes) == 1
    if feeding.state or single or most == 1 or fixed_batch(inputs, axes) is not None:
        return
    first = singles[0]
    alike = [feed for feed in singles if all(_alike(feed[name], first[name], axis) for name, axis in axes.items())]
    chosen = list(islice(cycle(alike), most))
    whole = {name: first[name] if axis is None else np.concatenate([feed[name] for feed in chosen], axis=axis) for name, axis in axes.items()}
    yield Odd(f"batch {most}, the largest", whole)


def _alike(one: Array, other: Array, axis: int | None) -> bool:
    return one.shape == other.shape and (axis is not None or np.array_equal(one, other))


def _seen(samples: Samples, feeding: Feeding, fed: Sequence[str]) -> tuple[dict[str, float], dict[str, float], list[Odd]]:
    """(least value of each input, largest value, the shortest and the longest request where lengths are open)."""
    open_lengths = not feeding.state and any(
        spec.shape is None or any(isinstance(d, str) for axis, d in enumerate(spec.shape) if axis != batch_axis(spec, feeding.batch_axes))
        for spec in inputs_from_data(feeding).inputs
    )
    low, high = dict.fromkeys(fed, np.inf), dict.fromkeys(fed, -np.inf)
    sizes: list[tuple[int, int]] = []
    for position, sample in enumerate(samples if open_lengths else FirstSamples(samples, _LOOKED_AT)):
        sizes.append((max(_size(feed) for feed in sample.feeds), position))
        for feed in sample.feeds if position < _LOOKED_AT else ():
            for name in fed:
                if np.size(feed[name]):
                    low[name], high[name] = min(low[name], float(np.min(feed[name]))), max(high[name], float(np.max(feed[name])))
    finite = {name for name in fed if np.isfinite(low[name])}
    low, high = ({name: found[name] for name in finite} for found in (low, high))
    ends = [("the shortest", min(sizes)[1]), ("the longest", max(sizes)[1])] if open_lengths else []
    return low, high, [Odd(name, requests(Span(samples, position, position + 1), feeding, most=1)[0]) for name, position in ends]


def _size(feed: Feed) -> int:
    return sum(int(np.size(array)) for array in feed.values())
