"""Kernels of layers as tensor expressions: convolutions with channels last, and matrix products.

Every kernel names the layer that it computes in an annotation (`LAYER`) of the block that multiplies, and TVM keeps it there
through fusion and scheduling: so the audit reads, layer by layer, what types the compiled functions multiply and add in.

Integers are UINT8 activations against INT8 weights, summed in INT32, exactly. An activation's zero point needs no arithmetic
of its own: borders are padded with it, so that it adds the same to every sum of an output channel, a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LAYER = "quant.layer"
TILE = "quant.tile"
BY_CHANNEL = "quant.by_channel"
SIDE_BY_SIDE = "quant.side_by_side"
LANES = 16
"""Output channels that are computed together: the 32-bit numbers in a vector of 512 bits."""
GROUP = 4
"""Products of bytes that one instruction sums up."""
_REGISTERS = 15
"""Vectors of sums that are held while a tile is computed; of 32, some hold operands."""
_MOST_ROWS = 14
_TERMS = 7


@dataclass(frozen=True)
class Window:
    """How a convolution slides over its input.

    Args:
        strides: Along each spatial axis.
        dilations: Along each spatial axis.
        pads: Before each spatial axis, then behind each.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]


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
        (7, 4)
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


def convolution(x: Any, packed: Any, *, layer: str, channels: int, window: Window, zero: int = 0) -> Any:
    """A convolution without groups: `x [batch, *spatial, in]` -> sums `[batch, *spatial, out]`.

    Args:
        x: The input; bytes or floats.
        packed: The weights as `pack` gives them.
        layer: Name of the layer.
        channels: Output channels.
        window: Strides, dilations and pads.
        zero: What stands for 0 in the input.
    """
    from tvm import te  # noqa: PLC0415 - optional, heavy

    filled = _padded(x, window.pads, zero, more=_missing(x, packed))
    out = _out_shape(filled.shape[1:-1], packed.shape[1:-3], window)
    axes = [te.reduce_axis((0, k), f"k{i}") for i, k in enumerate(packed.shape[1:-3])]

    def read(batch: Sequence[Any], place: Any, channel: Any) -> Any:
        at = [p * t + a * d for p, t, a, d in zip(_places(place, out), window.strides, axes, window.dilations, strict=True)]
        return filled[(*batch, *at, channel)]

    tiled = _Tiled(layer, [x.shape[0]], out, channels)
    return tiled.sums(read, lambda _batch, block, inner, lane, last: packed[(block, *axes, inner, lane, last)], axes, packed)


def rows(x: Any, packed: Any, *, layer: str, channels: int, zero: int = 0) -> Any:
    """Products of `x [..., in]` with a constant matrix, packed: sums `[..., out]`."""
    filled = _padded(x, (0, 0) * (len(x.shape) - 2), zero, more=_missing(x, packed))
    tiled = _Tiled(layer, [], x.shape[:-1], channels)

    def read(_batch: Sequence[Any], place: Any, channel: Any) -> Any:
        return filled[(*_places(place, x.shape[:-1]), channel)]

    return tiled.sums(read, lambda _batch, block, inner, lane, last: packed[block, inner, lane, last], [], packed)


def product(left: Any, right: Any, *, layer: str) -> Any:
    """Products of two activations, `left [..., m, k]` and `right [..., k, n]`: sums `[..., m, n]`.

    The right operand is put into the order of `pack` at run time.
    """
    from tvm import te, tirx  # noqa: PLC0415 - optional, heavy

    group = GROUP if right.dtype == "int8" else 1
    depth, channels = right.shape[-2], right.shape[-1]
    fours, blocks = (depth + group - 1) // group, (channels + 2 * LANES - 1) // (2 * LANES) * 2

    def ordered(*at: Any) -> Any:
        batch, (block, four, lane, last) = at[:-4], at[-4:]
        k, n = four * group + last, block * LANES + lane
        return tirx.if_then_else(tirx.all(k < depth, n < channels), right[(*batch, k, n)], tirx.const(0, right.dtype))

    packed = te.compute((*right.shape[:-2], blocks, fours, LANES, group), ordered, name="packed")
    filled = left
    if _int(depth) is None or int(depth) % group:
        shape = (*left.shape[:-1], fours * group)
        filled = te.compute(
            shape, lambda *at: tirx.if_then_else(at[-1] < depth, left[at], tirx.const(0, left.dtype)), name="padded"
        )
    batch = _broadcast(left.shape[:-2], right.shape[:-2])

    def of(tensor: Any, at: Sequence[Any]) -> list[Any]:
        own = tensor.shape[:-2] if tensor is left else right.shape[:-2]
        return [0 if _int(n) == 1 else i for n, i in zip(own, at[len(at) - len(own) :], strict=True)]

    tiled = _Tiled(layer, batch, [left.shape[-2]], channels)
    return tiled.sums(
        lambda b, place, k: filled[(*of(left, b), place, k)], lambda b, block, inner, lane, last: packed[(*of(right, b), block, inner, lane, last)], [], packed
    )


class _Tiled:
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
        high, wide = tile(_int(count), _int(self._places[-1]) if self._places else None, _int(blocks) or 2)
        exact = _int(count) is not None and int(count) % high == 0
        whole = count if exact else (count + high - 1) // high * high
        kind = "int32" if packed.dtype == "int8" else "float32"

        def one(*at: Any) -> Any:
            *batch, place, block, lane = at
            place = place if exact else tirx.min(place, count - 1)
            term = read(batch, place, inner * group + last).astype(kind) * weight(batch, block, inner, lane, last).astype(kind)
            return te.sum(term, axis=[*axes, inner, last])

        found = te.compute(
            (*self._batch, whole, blocks, LANES), one, name="sums", attrs={LAYER: self._layer, TILE: f"{high},{wide},{len(self._batch)}"}
        )
        first = len(self._batch)

        def flat(*at: Any) -> Any:
            return found[(*at[:first], _place(at[first:-1], self._places), at[-1] // LANES, at[-1] % LANES)]

        return te.compute((*self._batch, *self._places, self._channels), flat, name="output")


def depthwise(x: Any, weights: Any, *, layer: str, window: Window, zero: int = 0) -> Any:
    """A convolution of each channel with a kernel of its own: `x [batch, *spatial, channels]`, `weights [*kernel, channels]`."""
    from tvm import te  # noqa: PLC0415 - optional, heavy

    kernel = weights.shape[:-1]
    filled = _padded(x, window.pads, zero)
    out = _out_shape(filled.shape[1:-1], kernel, window)
    axes = [te.reduce_axis((0, k), f"k{i}") for i, k in enumerate(kernel)]
    sums = "int32" if weights.dtype == "int8" else "float32"

    def product(*at: Any) -> Any:
        places = [p * t + a * d for p, t, a, d in zip(at[1:-1], window.strides, axes, window.dilations, strict=True)]
        return te.sum(filled[(at[0], *places, at[-1])].astype(sums) * weights[(*axes, at[-1])].astype(sums), axis=axes)

    return te.compute((x.shape[0], *out, x.shape[-1]), product, name="sums", attrs={LAYER: layer, BY_CHANNEL: 1})


def grouped(x: Any, packed: Any, *, layer: str, channels: int, window: Window, zero: int = 0) -> Any:
    """A convolution in groups: `x [batch, *spatial, in]`, for each group the weights as `pack` gives them; sums `[batch, group, *spatial, out of the group]`."""
    from tvm import te  # noqa: PLC0415 - optional, heavy

    share = x.shape[-1] // packed.shape[0]
    # The channels that fill up a group's last four meet weights of 0; those of the last group must be there to be read.
    more = int(packed.shape[-3] * packed.shape[-1] - share)
    filled = _padded(x, window.pads, zero, more=more)
    out = _out_shape(filled.shape[1:-1], packed.shape[2:-3], window)
    axes = [te.reduce_axis((0, k), f"k{i}") for i, k in enumerate(packed.shape[2:-3])]

    def read(batch: Sequence[Any], place: Any, channel: Any) -> Any:
        at = [p * t + a * d for p, t, a, d in zip(_places(place, out), window.strides, axes, window.dilations, strict=True)]
        return filled[(batch[0], *at, batch[1] * share + channel)]

    tiled = _Tiled(layer, [x.shape[0], packed.shape[0]], out, channels)
    return tiled.sums(read, lambda batch, block, inner, lane, last: packed[(batch[1], block, *axes, inner, lane, last)], axes, packed)


def direct(x: Any, weights: Any, *, layer: str, window: Window, group: int) -> Any:
    """A convolution whose weights are computed, as ONNX has it: `x [batch, in, *spatial]`, `weights [out, in / group, *kernel]`."""
    from tvm import te  # noqa: PLC0415 - optional, heavy

    filled = _padded(x, window.pads, 0, channels_last=False)
    out = _out_shape(filled.shape[2:], weights.shape[2:], window)
    channel = te.reduce_axis((0, weights.shape[1]), "ko")
    kernel = [te.reduce_axis((0, k), f"k{i}") for i, k in enumerate(weights.shape[2:])]
    share = weights.shape[0] // group

    def one(*at: Any) -> Any:
        places = [p * t + a * d for p, t, a, d in zip(at[2:], window.strides, kernel, window.dilations, strict=True)]
        read = filled[(at[0], at[1] // share * weights.shape[1] + channel, *places)]
        return te.sum(read.astype("float32") * weights[(at[1], channel, *kernel)].astype("float32"), axis=[channel, *kernel])

    return te.compute((x.shape[0], weights.shape[0], *out), one, name="sums", attrs={LAYER: layer})


def spread(x: Any, strides: Sequence[int]) -> Any:
    """`x [batch, *spatial, channels]` with zeros between its values, so that they lie `strides` apart."""
    from tvm import te, tirx  # noqa: PLC0415 - optional, heavy

    if all(s == 1 for s in strides):
        return x
    shape = [x.shape[0], *((n - 1) * s + 1 for n, s in zip(x.shape[1:-1], strides, strict=True)), x.shape[-1]]

    def value(*at: Any) -> Any:
        meets = [i % s == 0 for i, s in zip(at[1:-1], strides, strict=True) if s > 1]
        return tirx.if_then_else(tirx.all(*meets), x[(at[0], *(i // s for i, s in zip(at[1:-1], strides, strict=True)), at[-1])], tirx.const(0, x.dtype))

    return te.compute(shape, value, name="spread")


def lookup(table: Any, indices: Any, *, axis: int, layer: str) -> Any:
    """What `indices` name along an axis of `table`; a negative index counts from the end."""
    from tvm import te, tirx  # noqa: PLC0415 - optional, heavy

    count, own = table.shape[axis], len(indices.shape)

    def one(*at: Any) -> Any:
        index = indices[at[axis : axis + own]].astype("int64")
        # An index that is out of range would read memory that is not the table's.
        index = tirx.max(tirx.min(tirx.Select(index < 0, index + count, index), count - 1), 0)
        return table[(*at[:axis], index, *at[axis + own :])]

    return te.compute((*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :]), one, name="found", attrs={LAYER: layer})


def codes(x: Any, scale: Any, zero: Any, *, dtype: str, low: int, high: int) -> Any:
    """`x` as codes: divided by the scale, rounded to even, moved by the zero point, clipped."""
    from tvm import te, tirx  # noqa: PLC0415 - optional, heavy

    def one(*at: Any) -> Any:
        moved = tirx.nearbyint(x[at] / scale[()]) + zero[()]
        return tirx.max(tirx.min(moved, tirx.const(high, "float32")), tirx.const(low, "float32")).astype("int32").astype(dtype)

    return te.compute(x.shape, one, name="codes")


def extreme(x: Any, *, largest: bool) -> Any:
    """The largest number of `x`, or 0 if that is larger (or the smallest); the last axis holds a multiple of `LANES`."""
    from tvm import te, tirx  # noqa: PLC0415 - optional, heavy

    pick = te.max if largest else te.min
    places = [te.reduce_axis((0, n), f"k{i}") for i, n in enumerate((*x.shape[:-1], x.shape[-1] // LANES))]
    lanes = te.compute((LANES,), lambda v: pick(x[(*places[:-1], places[-1] * LANES + v)], axis=places), name="lanes", attrs={SIDE_BY_SIDE: 1})
    v = te.reduce_axis((0, LANES), "v")
    one = te.compute((), lambda: pick(lanes[v], axis=v), name="one")
    nothing = tirx.const(0, "float32")
    return te.compute((), lambda: tirx.max(one[()], nothing) if largest else tirx.min(one[()], nothing), name="extreme")


def softmax(x: Any, axis: int) -> Any:
    """Softmax along the last axis."""
    from tvm import te  # noqa: PLC0415 - optional, heavy

    assert axis == len(x.shape) - 1, "only along the last axis"
    k, j = te.reduce_axis((0, x.shape[-1]), "k"), te.reduce_axis((0, x.shape[-1]), "j")
    most = te.compute(x.shape[:-1], lambda *at: te.max(x[(*at, k)], axis=k), name="most")
    risen = te.compute(x.shape, lambda *at: _exponential(x[at] - most[at[:-1]]), name="risen")
    whole = te.compute(x.shape[:-1], lambda *at: te.sum(risen[(*at, j)], axis=j), name="whole")
    return te.compute(x.shape, lambda *at: risen[at] / whole[at[:-1]], name="share")


def _exponential(x: Any) -> Any:
    """e to the power of `x`, which is not above 0: 2 to a whole number, times a Taylor series around 0; within 3e-7 of its value.

    TVM calls the C library for each number; this goes side by side. Below -87 it is 0, in FP32 almost to the last bit.
    """
    from tvm import tirx  # noqa: PLC0415 - optional, heavy

    def const(value: float) -> Any:
        return tirx.const(value, "float32")

    held = tirx.max(x, const(-87.0))
    whole = tirx.nearbyint(held * const(math.log2(math.e)))
    # The logarithm of 2 in two parts, of which the first has zeros at its end: its product with a small whole number is exact.
    rest = held - whole * const(0.693359375) - whole * const(math.log(2) - 0.693359375)
    series = const(1 / math.factorial(_TERMS))
    for n in range(_TERMS - 1, -1, -1):
        series = series * rest + const(1 / math.factorial(n))
    power = tirx.reinterpret("float32", (whole.astype("int32") + 127) << 23)
    return tirx.Select(x < const(-87.0), const(0.0), series * power)


def gelu(x: Any) -> Any:
    """x times the share of a normal distribution below x."""
    from tvm import te, topi  # noqa: PLC0415 - optional, heavy

    half = topi.fast_erf(te.compute(x.shape, lambda *at: x[at] * np.float32(math.sqrt(0.5)), name="scaled"))
    return te.compute(x.shape, lambda *at: x[at] * (half[at] * np.float32(0.5) + np.float32(0.5)), name="gelu")


def _broadcast(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    count = max(len(left), len(right))
    pairs = zip([1] * (count - len(left)) + list(left), [1] * (count - len(right)) + list(right), strict=True)
    return [b if _int(a) == 1 else a for a, b in pairs]


def _padded(x: Any, pads: Sequence[int], zero: int, *, more: int = 0, channels_last: bool = True) -> Any:
    """`x` with borders of `zero`, and so many channels more."""
    from tvm import te, tirx  # noqa: PLC0415 - optional, heavy

    spatial = len(pads) // 2
    if not any(pads) and not more:
        return x
    ahead = [0] if channels_last else [0, 0]
    before = [*ahead, *pads[:spatial], *([0] if channels_last else [])]
    behind = [*ahead, *pads[spatial:], *([more] if channels_last else [])]
    shape = [n + a + b if a or b else n for n, a, b in zip(x.shape, before, behind, strict=True)]

    def value(*at: Any) -> Any:
        inside = [i >= a for i, a in zip(at, before, strict=True) if a]
        inside += [i < n + a for i, n, a, b in zip(at, x.shape, before, behind, strict=True) if b]
        read = x[tuple(i - a for i, a in zip(at, before, strict=True))]
        return tirx.if_then_else(tirx.all(*inside), read, tirx.const(zero, x.dtype))

    return te.compute(shape, value, name="padded")


def _missing(x: Any, packed: Any) -> int:
    """Channels that `x` lacks for whole fours."""
    return int(packed.shape[-3] * packed.shape[-1] - x.shape[-1])


def _out_shape(shape: Sequence[Any], kernel: Sequence[Any], window: Window) -> list[Any]:
    return [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(shape, kernel, window.strides, window.dilations, strict=True)]


def _places(place: Any, shape: Sequence[Any]) -> list[Any]:
    """The coordinates of a place in a shape."""
    found = []
    for n in reversed(shape[1:]):
        found.append(place % n)
        place = place // n
    return [place, *reversed(found)]


def _place(at: Sequence[Any], shape: Sequence[Any]) -> Any:
    place = at[0]
    for i, n in zip(at[1:], shape[1:], strict=True):
        place = place * n + i
    return place


def _int(value: Any) -> int | None:
    """The number, if it is known in advance."""
    if isinstance(value, int):
        return value
    return int(value.value) if hasattr(value, "value") else None
