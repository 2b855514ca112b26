"""Other functions as tensor expressions: those that TVM has only one number at a time, or with less care."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quant.targets.relax.tiles import LANES, LAYER

SIDE_BY_SIDE = "quant.side_by_side"
_TERMS = 7


def codes(x: Any, scale: Any, zero: Any, *, dtype: str, low: int, high: int) -> Any:
    """`x` as codes: divided by the scale, rounded to even, moved by the zero point, clipped."""
    from tvm import te, tirx  # noqa: PLC0415 - optional, heavy

    def one(*at: Any) -> Any:
        moved = tirx.nearbyint(x[at] / scale[()]) + zero[()]
        return tirx.max(tirx.min(moved, tirx.const(high, "float32")), tirx.const(low, "float32")).astype("int32").astype(dtype)

    return te.compute(x.shape, one, name="codes")


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


def softmax(x: Any) -> Any:
    """Softmax along the last axis."""
    from tvm import te  # noqa: PLC0415 - optional, heavy

    k, j = te.reduce_axis((0, x.shape[-1]), "k"), te.reduce_axis((0, x.shape[-1]), "j")
    most = te.compute(x.shape[:-1], lambda *at: te.max(x[(*at, k)], axis=k), name="most")
    risen = te.compute(x.shape, lambda *at: _exponential(x[at] - most[at[:-1]]), name="risen")
    whole = te.compute(x.shape[:-1], lambda *at: te.sum(risen[(*at, j)], axis=j), name="whole")
    return te.compute(x.shape, lambda *at: risen[at] / whole[at[:-1]], name="share")


def gelu(x: Any) -> Any:
    """Of each number, it times the share of a normal distribution that lies below it."""
    from tvm import te, topi  # noqa: PLC0415 - optional, heavy

    half = topi.fast_erf(te.compute(x.shape, lambda *at: x[at] * np.float32(math.sqrt(0.5)), name="scaled"))
    return te.compute(x.shape, lambda *at: x[at] * (half[at] * np.float32(0.5) + np.float32(0.5)), name="gelu")


def _exponential(x: Any) -> Any:
    """The number e to the power of `x`, which is not above 0: 2 to a whole number, times a Taylor series around 0; within 3e-7 of its value.

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
