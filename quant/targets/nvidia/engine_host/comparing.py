"""An engine's outputs against those that were written when the model was exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
INPUT, OUTPUT = "input", "output"


@dataclass(frozen=True)
class Distance:
    """How far apart two arrays are.

    Args:
        rms: Root mean square of their difference; of anything but floats, the share of entries that differ.
        largest: Largest difference; of anything but floats, the same share.
    """

    rms: float
    largest: float


def distance(found: Array, expected: Array) -> Distance:
    """How far `found` is from `expected`; infinitely, where shapes differ or one is not finite where the other is.

    Example:
        >>> distance(np.float32([1, 2, 3, 4]), np.float32([1, 2, 3, 2]))
        Distance(rms=1.0, largest=2.0)
        >>> distance(np.int64([1, 2]), np.int64([1, 3]))
        Distance(rms=0.5, largest=0.5)
    """
    if found.shape != expected.shape:
        return Distance(float("inf"), float("inf"))
    if found.size == 0:
        return Distance(0.0, 0.0)
    if expected.dtype.kind != "f":
        share = float(np.mean(found != expected))
        return Distance(share, share)
    one, two = found.astype(np.float64), expected.astype(np.float64)
    same = (one == two) | (np.isnan(one) & np.isnan(two))
    if not np.array_equal(np.isfinite(one), np.isfinite(two)) or not same[~np.isfinite(two)].all():
        return Distance(float("inf"), float("inf"))
    difference = np.where(same, 0.0, np.where(np.isfinite(one), one, 0.0) - np.where(np.isfinite(two), two, 0.0))
    return Distance(float(np.sqrt(np.mean(difference**2))), float(np.abs(difference).max()))


def worst(distances: Sequence[Distance]) -> Distance:
    """The largest of each."""
    return Distance(max(d.rms for d in distances), max(d.largest for d in distances))


@dataclass(frozen=True)
class Compared:
    """One output over all reference samples.

    Args:
        output: Its name.
        found: How far the engine's is from the reference, at worst.
        allowed: How far it may be.
    """

    output: str
    found: Distance
    allowed: Distance

    @property
    def agrees(self) -> bool:
        """Whether the engine's output is near enough."""
        return self.found.rms <= self.allowed.rms and self.found.largest <= self.allowed.largest


def compare(
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    samples: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
    allowed: Mapping[str, Distance],
) -> list[Compared]:
    """Run every sample, and hold each output to what it may be away from its reference.

    Args:
        run: Inputs -> outputs of the engine.
        samples: Inputs and reference outputs.
        allowed: Output -> how far it may be.
    """
    found: dict[str, list[Distance]] = {name: [] for name in allowed}
    for feed, expected in samples:
        outputs = run(feed)
        for name in allowed:
            found[name].append(distance(outputs[name], expected[name]))
    return [Compared(name, worst(found[name]), allowed[name]) for name in allowed]


def pack(samples: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]]) -> dict[str, Array]:
    """Samples as arrays of one `.npz` file: `0/input/NAME`, `0/output/NAME`, `1/input/NAME`, ..."""
    parts = ((i, kind, arrays) for i, pair in enumerate(samples) for kind, arrays in zip((INPUT, OUTPUT), pair, strict=True))
    return {f"{i}/{kind}/{name}": array for i, kind, arrays in parts for name, array in arrays.items()}


def unpack(arrays: Mapping[str, Array]) -> list[tuple[dict[str, Array], dict[str, Array]]]:
    """What `pack` packed.

    Example:
        >>> unpack(pack([({"a/b": np.zeros(1)}, {"y": np.ones(1)})]))
        [({'a/b': array([0.])}, {'y': array([1.])})]
    """
    found: dict[int, tuple[dict[str, Array], dict[str, Array]]] = {}
    for key in arrays:
        number, kind, name = key.split("/", 2)
        found.setdefault(int(number), ({}, {}))[kind == OUTPUT][name] = arrays[key]
    return [found[i] for i in sorted(found)]
