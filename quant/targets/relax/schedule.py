"""How functions run on the CPU: tiles of sums in registers, rows of tiles on threads, lanes side by side.

No sum is spread over threads, so that results never depend on their number.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from quant.targets.relax.functions import SIDE_BY_SIDE
from quant.targets.relax.kernels import BY_CHANNEL
from quant.targets.relax.tiles import LANES, LAYER, TILE

DOT = "vpdpbusd"
_INTRINSIC = "llvm.x86.avx512.vpdpbusd.512"
_ROWS = 32
"""Rows that are enough to go round."""
_WIDEST = (8, 7, 6, 5, 4, 3, 2)


def schedule(function: Any, *, dot: bool) -> Any:
    """`function` scheduled, and what it computes unchanged.

    Args:
        function: A TIR function, as fusion leaves it.
        dot: Whether the CPU multiplies bytes and sums them up in one instruction (AVX-512 VNNI).
    """
    sch = s_tir.Schedule(function, error_render_level="detail")
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    layers = [block for block in blocks if LAYER in sch.get(block).annotations]
    if not blocks or any(not _is_plain(sch, block) for block in blocks):
        return function
    if len(layers) == 1 and TILE in sch.get(layers[0]).annotations:
        _tiled(sch, *_around(sch, blocks, layers[0]), dot=dot)
    elif len(layers) == 1 and BY_CHANNEL in sch.get(layers[0]).annotations:
        _depthwise(sch, *_around(sch, blocks, layers[0]))
    else:
        _others(sch, blocks)
    return sch.mod["main"]


def _is_plain(sch: Any, block: Any) -> bool:
    """Whether a block is nothing but loops over places and sums."""
    kinds = {int(v.iter_type) for v in sch.get(block).iter_vars}
    return kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce} and len(sch.get_loops(block)) == len(sch.get(block).iter_vars)


def _is_reduction(sch: Any, block: Any) -> bool:
    return any(int(v.iter_type) == tirx.IterVar.CommReduce for v in sch.get(block).iter_vars)


def _around(sch: Any, blocks: Any, layer: Any) -> tuple[Any, Any]:
    """(the layer, the block behind it): what stands between is worked into the last one, and what stands before runs first."""
    names = [sch.get(block).name_hint for block in blocks]
    position = names.index(sch.get(layer).name_hint)
    for block in blocks[:position]:
        _plain(sch, block)
    for block in blocks[position + 1 : -1]:
        sch.compute_inline(block)
    return layer, blocks[-1] if position + 1 < len(blocks) else None


def _others(sch: Any, blocks: Any) -> None:
    """Work what is computed element by element into what reads it; the rest runs block by block."""
    left = []
    for block in blocks[:-1]:
        if _is_reduction(sch, block) or LAYER in sch.get(block).annotations:
            left.append(block)
            continue
        try:
            sch.compute_inline(block)
        except s_tir.ScheduleError:  # it is read by something that cannot take it in
            left.append(block)
    for block in (*left, blocks[-1]):
        _plain(sch, block)


def _plain(sch: Any, block: Any) -> None:
    """Rows on threads, or lanes side by side: as many of the outer loops as give enough of them, for each that is fused costs divisions at every turn."""
    kinds = [int(v.iter_type) for v in sch.get(block).iter_vars]
    loops = sch.get_loops(block)
    outer = loops[: next((i for i, kind in enumerate(kinds) if kind != tirx.IterVar.DataPar), len(kinds))]
    if not outer:
        return
    if SIDE_BY_SIDE in sch.get(block).annotations:
        sch.reorder(*loops[1:], loops[0])
        sch.vectorize(loops[0])
        sch.decompose_reduction(block, loops[1])
        return
    if len(outer) == len(loops):
        length = _extent(sch, loops[-1])
        if length is not None and length % LANES == 0:
            last, lanes = sch.split(loops[-1], [None, LANES])
            sch.vectorize(lanes)
            outer = [*loops[:-1], last]
        elif len(loops) > 1:
            outer = loops[:-1]
    count, rows = 0, 1
    while count < len(outer) and rows < _ROWS:
        rows *= _extent(sch, outer[count]) or 1
        count += 1
    sch.parallel(sch.fuse(*outer[:count]))


def _extent(sch: Any, loop: Any) -> int | None:
    extent = sch.get(loop).extent
    return int(extent.value) if isinstance(extent, tirx.IntImm) else None


def _tiled(sch: Any, layer: Any, last: Any, *, dot: bool) -> None:
    """Sums of a tile in registers; what follows is computed tile by tile, where tiles meet its shape."""
    high, wide, batch = map(int, str(sch.get(layer).annotations[TILE]).split(","))
    of_bytes = any(str(region.source.dtype) == "int8" for region in sch.get(layer).reads)
    rows, blocks = (_extent(sch, loop) for loop in sch.get_loops(layer)[batch : batch + 2])
    loops = sch.get_loops(last)
    places, channels = loops[batch:-1], _extent(sch, loops[-1])
    lengths = [_extent(sch, loop) for loop in places]
    whole = channels is not None and channels % (wide * LANES) == 0
    if rows is not None and _product(lengths) == rows and (lengths[-1] or 1) % high == 0 and channels is not None and (whole or blocks == wide):
        row, lane = sch.fuse(*places), LANES if whole else next(n for n in (16, 8, 4, 2, 1) if channels % n == 0)
        outer = [*loops[:batch], *_tile(sch, row, loops[-1], high=high, wide=wide if whole else channels // lane, lane=lane)]
    else:
        copy = sch.cache_write(layer, 0, "global")
        loops = sch.get_loops(copy)
        outer = [*loops[:batch], *_tile(sch, loops[batch], loops[batch + 1], high=high, wide=wide, lane=None)]
        sch.vectorize(loops[-1])
        _plain(sch, last)
    sch.compute_at(layer, outer[-1], preserve_unit_loops=True)
    sch.parallel(sch.fuse(*outer))
    _registers(sch, layer, batch, dot=dot and of_bytes)


def _tile(sch: Any, row: Any, channel: Any, *, high: int, wide: int, lane: int | None) -> list[Any]:
    """Split rows and channels into tiles; gives the loops over tiles."""
    far, near = sch.split(row, [None, high])
    if lane is None:
        blocks, block = sch.split(channel, [None, wide])
        sch.reorder(far, blocks, near, block)
    else:
        blocks, block, lanes = sch.split(channel, [None, wide, lane])
        sch.reorder(far, blocks, near, block, lanes)
        sch.vectorize(lanes)
    sch.unroll(near)
    sch.unroll(block)
    return [far, blocks]


def _registers(sch: Any, layer: Any, batch: int, *, dot: bool) -> None:
    """The loops of one tile: sums over inputs outside, rows and channels inside, unrolled."""
    own = sch.get_loops(layer)[-len(sch.get(layer).iter_vars) :]
    places, sums = own[batch : batch + 3], own[batch + 3 :]
    row, block, lanes = places
    *outer, last = sums
    sch.unroll(row)
    sch.unroll(block)
    if dot:
        sch.reorder(*outer, row, block, lanes, last)
    else:
        sch.reorder(*outer, row, block, last, lanes)
        sch.unroll(last)
        sch.vectorize(lanes)
    first = sch.decompose_reduction(layer, outer[0])
    if dot:
        sch.vectorize(sch.get_loops(first)[-1])
        _dot(sch, lanes)


def _dot(sch: Any, lanes: Any) -> None:
    """Replace 16 sums of 4 products of bytes by the instruction for it.

    Done by hand, for TVM's own `tensorize` (0.27) ends the process with a segmentation fault, whatever it is given.
    """
    outer = sch.blockize(lanes)
    block = sch.get(outer)
    inner = sch.get(sch.get_child_blocks(outer)[0])
    sums = block.writes[0]
    left, right = (next(r for r in block.reads if str(r.source.dtype) == dtype) for dtype in ("uint8", "int8"))
    here = _ramp(sums, LANES)
    four = tirx.reinterpret("int32", tirx.BufferLoad(left.source, _ramp(left, 4)))
    value = tirx.call_llvm_pure_intrin(
        "int32x16",
        _INTRINSIC,
        tirx.BufferLoad(sums.source, here),
        tirx.reinterpret("int8x64", tirx.Broadcast(four, LANES)),
        tirx.BufferLoad(right.source, _ramp(right, 4 * LANES)),
    )
    body = tirx.BufferStore(sums.source, value, here)
    made = s_tir.SBlock(block.iter_vars, block.reads, block.writes, "dot", body, annotations={LAYER: inner.annotations[LAYER]})
    sch.state.replace(sch.get_sref(outer), made, {block: made})


def _ramp(region: Any, lanes: int) -> list[Any]:
    return [*(r.min for r in region.region[:-1]), tirx.Ramp(region.region[-1].min, 1, lanes)]


def _depthwise(sch: Any, layer: Any, last: Any) -> None:
    """Channels side by side, places of a row in registers."""
    if last is None:
        _plain(sch, layer)
        return
    loops = sch.get_loops(last)
    count = len(sch.get(layer).iter_vars) - sum(int(v.iter_type) == tirx.IterVar.CommReduce for v in sch.get(layer).iter_vars)
    channels, row = _extent(sch, loops[-1]), _extent(sch, loops[-2])
    lane = next(n for n in (16, 8, 4, 2, 1) if channels is not None and channels % n == 0)
    high = next((n for n in _WIDEST if row is not None and row % n == 0), 1)
    far, near = sch.split(loops[-2], [None, high])
    blocks, lanes = sch.split(loops[-1], [None, lane])
    sch.reorder(*loops[:-2], far, blocks, near, lanes)
    sch.unroll(near)
    sch.vectorize(lanes)
    sch.compute_at(layer, blocks, preserve_unit_loops=True)
    sch.parallel(sch.fuse(*loops[:-2]))
    own = sch.get_loops(layer)[-len(sch.get(layer).iter_vars) :]
    places, sums = own[:count], own[count:]
    sch.reorder(*sums, *places[-2:])
    for loop in (*sums, places[-2]):
        sch.unroll(loop)
    sch.vectorize(places[-1])
    sch.decompose_reduction(layer, sums[0])


def _product(lengths: list[int | None]) -> int | None:
    found = 1
    for length in lengths:
        if length is None:
            return None
        found *= length
    return found
