"""Kernels of layers as tensor expressions: convolutions with channels last, and matrix products.

Every kernel names the layer that it computes in an annotation (`LAYER`) of the block that multiplies, and TVM keeps it there
through fusion and scheduling: so the audit reads, layer by layer, what types the compiled functions multiply and add in.

Integers are UINT8 activations against INT8 weights, summed in INT32, exactly. An activation's zero point needs no arithmetic
of its own: borders are padded with it, so that it adds the same to every sum of an output channel, a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from quant.targets.relax.tiles import GROUP, LANES, LAYER, Tiled, known, places

BY_CHANNEL = "quant.by_channel"


@dataclass(frozen=True)
class Window:
    """How a convolution slides over its input.

    Args:
        strides: Along each spatial axis.
        dilations: Along each spatial axis.
        pads: Before each spatial axis, then behind each.
        same: Where an odd one of the pads goes, which then follow from the shape: so many that the output has the input's length by the stride.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...] = ()
    same: Literal["before", "behind"] | None = None

    def borders(self, shape: Sequence[Any], kernel: Sequence[Any]) -> list[tuple[Any, int]]:
        """(pad before, room for both pads) of each axis of an input of spatial `shape`; the first may be an expression of a dynamic length.

        Example:
            >>> Window((2, 1), (1, 1), same="behind").borders([7, 8], [3, 4])
            [(1, 2), (1, 3)]
        """
        if self.same is None:
            axes = len(self.pads) // 2
            return [(a, a + b) for a, b in zip(self.pads[:axes], self.pads[axes:], strict=True)]
        found = []
        for n, s, d, k in zip(shape, self.strides, self.dilations, kernel, strict=True):
            reach = (int(k) - 1) * d + 1
            whole = reach - 1 if 1 in {s, reach} else _at_least_0(reach - 1 - (n - 1) % s)
            found.append((whole // 2 if self.same == "behind" else whole - whole // 2, reach - 1))
        return found

    def out(self, shape: Sequence[Any], kernel: Sequence[Any]) -> list[Any]:
        """Spatial shape of the output.

        Example:
            >>> Window((2, 1), (1, 1), same="behind").out([7, 8], [3, 4])
            [4, 8]
        """
        if self.same is not None:
            return [(n + s - 1) // s for n, s in zip(shape, self.strides, strict=True)]
        rooms = [room for _, room in self.borders(shape, kernel)]
        return [(n + room - (k - 1) * d - 1) // s + 1 for n, room, k, s, d in zip(shape, rooms, kernel, self.strides, self.dilations, strict=True)]


def _at_least_0(value: Any) -> Any:
    if isinstance(value, int):
        return max(value, 0)
    from tvm import tirx  # noqa: PLC0415 - optional, heavy

    return tirx.max(value, 0)


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

    filled = _padded(x, window.borders(_numbers(x.shape[1:-1]), packed.shape[1:-3]), zero, more=_missing(x, packed))
    out = window.out(_numbers(x.shape[1:-1]), packed.shape[1:-3])
    axes = [te.reduce_axis((0, k), f"k{i}") for i, k in enumerate(packed.shape[1:-3])]

    def read(batch: Sequence[Any], place: Any, channel: Any) -> Any:
        at = [p * t + a * d for p, t, a, d in zip(places(place, out), window.strides, axes, window.dilations, strict=True)]
        return filled[(*batch, *at, channel)]

    tiled = Tiled(layer, [x.shape[0]], out, channels)
    return tiled.sums(read, lambda _batch, block, inner, lane, last: packed[(block, *axes, inner, lane, last)], axes, packed)


def rows(x: Any, packed: Any, *, layer: str, channels: int, zero: int = 0) -> Any:
    """Products of `x [..., in]` with a constant matrix, packed: sums `[..., out]`."""
    filled = _padded(x, [(0, 0)] * (len(x.shape) - 2), zero, more=_missing(x, packed))
    tiled = Tiled(layer, [], x.shape[:-1], channels)

    def read(_batch: Sequence[Any], place: Any, channel: Any) -> Any:
        return filled[(*places(place, x.shape[:-1]), channel)]

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
    if known(depth) is None or int(depth) % group:
        shape = (*left.shape[:-1], fours * group)
        filled = te.compute(shape, lambda *at: tirx.if_then_else(at[-1] < depth, left[at], tirx.const(0, left.dtype)), name="padded")
    batch = _broadcast(left.shape[:-2], right.shape[:-2])

    def of(tensor: Any, at: Sequence[Any]) -> list[Any]:
        own = tensor.shape[:-2] if tensor is left else right.shape[:-2]
        return [0 if known(n) == 1 else i for n, i in zip(own, at[len(at) - len(own) :], strict=True)]

    tiled = Tiled(layer, batch, [left.shape[-2]], channels)
    return tiled.sums(
        lambda b, place, k: filled[(*of(left, b), place, k)], lambda b, block, inner, lane, last: packed[(*of(right, b), block, inner, lane, last)], [], packed
    )


def depthwise(x: Any, weights: Any, *, layer: str, window: Window, zero: int = 0) -> Any:
    """A convolution of each channel with a kernel of its own: `x [batch, *spatial, channels]`, `weights [*kernel, channels]`."""
    from tvm import te  # noqa: PLC0415 - optional, heavy

    kernel = weights.shape[:-1]
    filled = _padded(x, window.borders(_numbers(x.shape[1:-1]), kernel), zero)
    out = window.out(_numbers(x.shape[1:-1]), kernel)
    axes = [te.reduce_axis((0, k), f"k{i}") for i, k in enumerate(kernel)]
    sums = "int32" if weights.dtype == "int8" else "float32"

    def product(*at: Any) -> Any:
        places = [p * t + a * d for p, t, a, d in zip(at[1:-1], window.strides, axes, window.dilations, strict=True)]
        return te.sum(filled[(at[0], *places, at[-1])].astype(sums) * weights[(*axes, at[-1])].astype(sums), axis=axes)

    return te.compute((x.shape[0], *out, x.shape[-1]), product, name="sums", attrs={LAYER: layer, BY_CHANNEL: 1})


def grouped(x: Any, packed: Any, *, layer: str, channels: int, window: Window, zero: int = 0) -> Any:
    """A convolution in groups: `x [batch, *spatial, in]`, for each group the weights as `pack` gives them.

    Its sums are `[batch, group, *spatial, out]`, with the output channels of a group; the other arguments are those of `convolution`.
    """
    from tvm import te  # noqa: PLC0415 - optional, heavy

    share = x.shape[-1] // packed.shape[0]
    # The channels that fill up a group's last four meet weights of 0; those of the last group must be there to be read.
    more = int(packed.shape[-3] * packed.shape[-1] - share)
    filled = _padded(x, window.borders(_numbers(x.shape[1:-1]), packed.shape[2:-3]), zero, more=more)
    out = window.out(_numbers(x.shape[1:-1]), packed.shape[2:-3])
    axes = [te.reduce_axis((0, k), f"k{i}") for i, k in enumerate(packed.shape[2:-3])]

    def read(batch: Sequence[Any], place: Any, channel: Any) -> Any:
        at = [p * t + a * d for p, t, a, d in zip(places(place, out), window.strides, axes, window.dilations, strict=True)]
        return filled[(batch[0], *at, batch[1] * share + channel)]

    tiled = Tiled(layer, [x.shape[0], packed.shape[0]], out, channels)
    return tiled.sums(read, lambda batch, block, inner, lane, last: packed[(batch[1], block, *axes, inner, lane, last)], axes, packed)


def direct(x: Any, weights: Any, *, layer: str, window: Window, group: int) -> Any:
    """A convolution whose weights are computed, as ONNX has it: `x [batch, in, *spatial]`, `weights [out, in / group, *kernel]`."""
    from tvm import te  # noqa: PLC0415 - optional, heavy

    filled = _padded(x, window.borders(_numbers(x.shape[2:]), weights.shape[2:]), 0, channels_last=False)
    out = window.out(_numbers(x.shape[2:]), weights.shape[2:])
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


def _broadcast(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    count = max(len(left), len(right))
    pairs = zip([1] * (count - len(left)) + list(left), [1] * (count - len(right)) + list(right), strict=True)
    return [b if known(a) == 1 else a for a, b in pairs]


def _padded(x: Any, borders: Sequence[tuple[Any, int]], zero: int, *, more: int = 0, channels_last: bool = True) -> Any:
    """`x` with borders of `zero` around its spatial axes, and so many channels more."""
    from tvm import te, tirx  # noqa: PLC0415 - optional, heavy

    rooms = [(0, 0), *borders, (0, more)] if channels_last else [(0, 0), (0, 0), *borders]
    if not any(room for _, room in rooms):
        return x
    shape = [n + room if room else n for n, (_, room) in zip(x.shape, rooms, strict=True)]

    def value(*at: Any) -> Any:
        inside = [i >= before for i, (before, _) in zip(at, rooms, strict=True) if known(before) != 0]
        inside += [i < n + before for i, n, (before, room) in zip(at, x.shape, rooms, strict=True) if room]
        read = x[tuple(i - before for i, (before, _) in zip(at, rooms, strict=True))]
        return tirx.if_then_else(tirx.all(*inside), read, tirx.const(zero, x.dtype))

    return te.compute(shape, value, name="padded")


def _numbers(shape: Sequence[Any]) -> list[Any]:
    """Lengths that are known as numbers of Python's."""
    return [n if (number := known(n)) is None else number for n in shape]


def _missing(x: Any, packed: Any) -> int:
    """Channels that `x` lacks for whole fours."""
    return int(packed.shape[-3] * packed.shape[-1] - x.shape[-1])
