"""Sums in tiles: so many rows and blocks of output channels that their sums stay in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

LAYER = "quant.layer"
TILE = "quant.tile"
LANES = 16
"""Output channels that are computed together: the 32-bit numbers in a vector of 512 bits."""
GROUP = 4
"""Products of bytes that one instruction sums up."""
_REGISTERS = 15
"""Vectors of sums that are held while a tile is computed; of 32, some hold operands."""
_MOST_ROWS = 14


def pack(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Weights `[out, in, *kernel]` in the order that the kernel reads them: `[out / 16, *kernel, in / 4, 16, 4]`, bytes in fours.

    What is added to fill the last vector is 0. Floats are not grouped: `[out / 16, *kernel, in, 16, 1]`.

    Example:
        >>> pack(np.ones((24, 3, 5, 5), np.int8)).shape
        (2, 5, 5, 1, 16, 4)
    """
    group = GROUP if weights.dtype == np.int8 else 1
    out, channels, *kernel = weights.shape
    blocks, fours = -(-out // LANES), -(-channels // group)
    filled = np.zeros((blocks * LANES, fours * group, *kernel), weights.dtype)
    filled[:out, :channels] = weights
    split = filled.reshape(blocks, LANES, fours, group, *kernel)
    axes = range(4, 4 + len(kernel))
    return np.ascontiguousarray(split.transpose(0, *axes, 2, 1, 3))


def tile(rows: int | None, row: int | None, blocks: int) -> tuple[int, int]:
    """(rows, blocks of channels) that are computed together, their sums in registers.

    Args:
        rows: Places of the output, all spatial axes together; None when not known in advance.
        row: Places along its last spatial axis: a tile that does not cross its end is simple.
        blocks: Blocks of `LANES` output channels.

    Example:
        >>> tile(56 * 56, 56, 8)
        (7, 2)
    """
    best, most = (1, 1), 0.0
    for wide in (n for n in range(1, 9) if blocks % n == 0):
        for high in range(1, min(_MOST_ROWS, _REGISTERS // wide) + 1):
            used = 1.0 if rows is None else rows / (-(-rows // high) * high)
            if row is None or row % high:
                used *= 0.5  # what follows cannot be computed tile by tile
            # Loads for every product: of `wide` vectors of weights, and of `high` inputs that go with all of them.
            gain = used * wide * high / (wide + high)
            if gain > most + 1e-9:
                best, most = (high, wide), gain
    return best


class Tiled:
    """Sums in tiles of rows and blocks of channels.

    Args:
        layer: Name of the layer.
        batch: Axes that stay as they are.
        places: Axes that are taken together as rows.
        channels: Output channels.
    """

    def __init__(self, layer: str, batch: Sequence[Any], places: Sequence[Any], channels: Any) -> None:
        self._layer = layer
        self._batch, self._places, self._channels = list(batch), list(places), channels

    def sums(self, read: Any, weight: Any, axes: Sequence[Any], packed: Any) -> Any:
        """`[*batch, *places, channels]` from `read(batch, place, channel)` and `weight(batch, block, inner, lane, last)`."""
        from tvm import te, tirx  # noqa: PLC0415 - optional, heavy

        blocks, fours, group = packed.shape[-4 - len(axes)], packed.shape[-3], int(packed.shape[-1])
        inner, last = te.reduce_axis((0, fours), "ko"), te.reduce_axis((0, group), "ki")
        count = math.prod(self._places[1:], start=self._places[0]) if self._places else 1
        high, wide = tile(known(count), known(self._places[-1]) if self._places else None, known(blocks) or 2)
        exact = known(count) is not None and int(count) % high == 0
        whole = count if exact else (count + high - 1) // high * high
        kind = "int32" if packed.dtype == "int8" else "float32"

        def one(*at: Any) -> Any:
            *batch, row, block, lane = at
            row = row if exact else tirx.min(row, count - 1)
            term = read(batch, row, inner * group + last).astype(kind) * weight(batch, block, inner, lane, last).astype(kind)
            return te.sum(term, axis=[*axes, inner, last])

        found = te.compute((*self._batch, whole, blocks, LANES), one, name="sums", attrs={LAYER: self._layer, TILE: f"{high},{wide},{len(self._batch)}"})
        first = len(self._batch)

        def flat(*at: Any) -> Any:
            return found[(*at[:first], place(at[first:-1], self._places), at[-1] // LANES, at[-1] % LANES)]

        return te.compute((*self._batch, *self._places, self._channels), flat, name="output")


def places(place: Any, shape: Sequence[Any]) -> list[Any]:
    """The coordinates of a place in a shape.

    Example:
        >>> places(23, [4, 3, 5])
        [1, 1, 3]
    """
    found = []
    for n in reversed(shape[1:]):
        found.append(place % n)
        place = place // n
    return [place, *reversed(found)]


def place(at: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The place that has the coordinates `at`."""
    found = at[0]
    for i, n in zip(at[1:], shape[1:], strict=True):
        found = found * n + i
    return found


def known(value: Any) -> int | None:
    """The number, if it is known in advance."""
    if isinstance(value, int):
        return value
    return int(value.value) if hasattr(value, "value") else None
