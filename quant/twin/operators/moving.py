"""Operators that move values: shapes, slices, gathers, scatters."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.nn import functional

from quant.twin.operators import Call, operator
from quant.twin.operators.numbers import Number


def reshape(x: torch.Tensor, shape: Number, allowzero: int) -> torch.Tensor:
    """`Reshape`: 0 keeps the length of that axis unless `allowzero`."""
    lengths = [x.shape[i] if isinstance(n, int) and n == 0 and not allowzero else n for i, n in enumerate(shape)]
    return torch.reshape(x, lengths)


@operator("Reshape")
def _reshape(call: Call) -> fx.Node:
    return call.emit(reshape, call.tensor(), call.number(1), call.attribute("allowzero", 0))


def flatten(x: torch.Tensor, axis: int) -> torch.Tensor:
    """`Flatten` to two axes."""
    axis = axis + x.dim() if axis < 0 else axis
    if axis == 0:
        return x.reshape(1, -1)
    return torch.flatten(x, 1) if axis == 1 and x.dim() > 1 else torch.reshape(x, (_product(x.shape[:axis]), _product(x.shape[axis:])))


def _product(lengths: Any) -> Any:
    out = 1
    for n in lengths:
        out = out * n
    return out


@operator("Flatten")
def _flatten(call: Call) -> fx.Node:
    return call.emit(flatten, call.tensor(), call.attribute("axis", 1))


def transpose(x: torch.Tensor, order: list[int] | None) -> torch.Tensor:
    """`Transpose`; without an order all axes are reversed."""
    return x.permute(list(reversed(range(x.dim()))) if order is None else order)


@operator("Transpose")
def _transpose(call: Call) -> fx.Node:
    return call.emit(transpose, call.tensor(), call.attribute("perm"))


def squeeze(x: torch.Tensor, axes: Number | None) -> torch.Tensor:
    """`Squeeze`."""
    return torch.squeeze(x) if axes is None else torch.squeeze(x, tuple(axes))


def unsqueeze(x: torch.Tensor, axes: Number) -> torch.Tensor:
    """`Unsqueeze`; axes are those of the result."""
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = torch.unsqueeze(x, axis)
    return x


@operator("Squeeze")
def _squeeze(call: Call) -> fx.Node:
    return call.emit(squeeze, call.tensor(), _list(call, 1))


@operator("Unsqueeze")
def _unsqueeze(call: Call) -> fx.Node:
    return call.emit(unsqueeze, call.tensor(), _list(call, 1))


def _list(call: Call, position: int) -> Any:
    found = call.number(position)
    return [found] if isinstance(found, int) else found


def expand(x: torch.Tensor, shape: Number) -> torch.Tensor:
    """`Expand`: lengths of 1 on either side give way."""
    shape = list(shape)
    own = [1] * (len(shape) - x.dim()) + list(x.shape)
    shape = [1] * (len(own) - len(shape)) + shape
    return x.expand([o if isinstance(s, int) and s == 1 else s for o, s in zip(own, shape, strict=True)])


@operator("Expand")
def _expand(call: Call) -> fx.Node:
    return call.emit(expand, call.tensor(), call.number(1))


def join(parts: list[torch.Tensor], axis: int) -> torch.Tensor:
    """`Concat`."""
    return torch.cat(parts, axis)


@operator("Concat")
def _concat(call: Call) -> fx.Node:
    return call.emit(join, call.tensors(), call.attribute("axis"))


def split(x: torch.Tensor, sizes: Number | None, parts: int, axis: int) -> tuple[torch.Tensor, ...]:
    """`Split`; without sizes all parts are equal but for a smaller last."""
    if sizes is None:
        length = x.shape[axis]
        size = -(-length // parts)
        sizes = [size] * (parts - 1) + [length - size * (parts - 1)]
    return tuple(torch.split(x, list(sizes), axis))


@operator("Split")
def _split(call: Call) -> tuple[fx.Node | None, ...]:
    return call.each(call.emit(split, call.tensor(), call.number(1), len(call.node.output), call.attribute("axis", 0)))


def cut(x: torch.Tensor, starts: Number, ends: Number, axes: Number | None, steps: Number | None) -> torch.Tensor:
    """`Slice`; a negative step walks backwards."""
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = i if axes is None else axes[i]
        step = 1 if steps is None else steps[i]
        if step > 0:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
        else:
            places = range(*slice(start, None if end < -x.shape[axis] else end, step).indices(x.shape[axis]))
            x = torch.index_select(x, axis, torch.tensor(list(places), dtype=torch.int64))
    return x


@operator("Slice")
def _slice(call: Call) -> fx.Node:
    return call.emit(cut, call.tensor(), *(_list(call, i) for i in (1, 2, 3, 4)))


def _from_front(indices: torch.Tensor, length: Any) -> torch.Tensor:
    return torch.where(indices < 0, indices + length, indices).long()


def gather(x: torch.Tensor, indices: torch.Tensor, axis: int) -> torch.Tensor:
    """`Gather`: the axis gives way to the axes of the indices."""
    axis = axis % x.dim()
    taken = torch.index_select(x, axis, _from_front(indices, x.shape[axis]).reshape(-1))
    return taken.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def gather_rows(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """`Gather` along the first axis of a table."""
    return functional.embedding(_from_front(indices, x.shape[0]), x)


def gather_one(x: torch.Tensor, index: int, axis: int) -> torch.Tensor:
    """`Gather` with a single constant index."""
    return torch.select(x, axis, index)


@operator("Gather")
def _gather(call: Call) -> fx.Node:
    fixed, axis = call.values.constant(call.node.input[1]), call.attribute("axis", 0)
    if fixed is not None and fixed.ndim == 0:
        return call.emit(gather_one, call.tensor(), int(fixed), axis)
    table = call.values.constant(call.node.input[0])
    if axis == 0 and table is not None and table.ndim == 2 and table.dtype.kind == "f":  # noqa: PLR2004 - a matrix
        return call.emit(gather_rows, call.tensor(0), call.tensor(1))
    return call.emit(gather, call.tensor(0), call.tensor(1), axis)


def gather_elements(x: torch.Tensor, indices: torch.Tensor, axis: int) -> torch.Tensor:
    """`GatherElements`."""
    return torch.gather(x, axis, _from_front(indices, x.shape[axis]))


@operator("GatherElements")
def _gather_elements(call: Call) -> fx.Node:
    return call.emit(gather_elements, call.tensor(0), call.tensor(1), call.attribute("axis", 0))


def _places(x: torch.Tensor, indices: torch.Tensor, batch: int) -> tuple[torch.Tensor, ...]:
    """For each axis that the last axis of `indices` addresses, and each batch axis before, the places along it."""
    rank = indices.dim() - 1
    own = []
    for axis in range(batch):
        view = [1] * rank
        view[axis] = x.shape[axis]
        own.append(torch.arange(x.shape[axis]).reshape(view))
    return (*own, *(_from_front(indices[..., i], x.shape[batch + i]) for i in range(indices.shape[-1])))


def gather_nd(x: torch.Tensor, indices: torch.Tensor, batch: int) -> torch.Tensor:
    """`GatherND`."""
    return x[_places(x, indices, batch)]


@operator("GatherND")
def _gather_nd(call: Call) -> fx.Node:
    return call.emit(gather_nd, call.tensor(0), call.tensor(1), call.attribute("batch_dims", 0))


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter_elements(x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, axis: int, reduction: str) -> torch.Tensor:
    """`ScatterElements`."""
    places = _from_front(indices, x.shape[axis])
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    return torch.scatter_reduce(x, axis, places, updates, _REDUCTIONS[reduction])


@operator("ScatterElements")
def _scatter_elements(call: Call) -> fx.Node:
    return call.emit(scatter_elements, call.tensor(0), call.tensor(1), call.tensor(2), call.attribute("axis", 0), call.attribute("reduction", "none"))


def scatter_nd(x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, reduction: str) -> torch.Tensor:
    """`ScatterND`."""
    places = _places(x, indices, 0)
    if reduction in {"none", "add"}:
        return torch.index_put(x, places, updates, accumulate=reduction == "add")
    count = len(places)
    flat = torch.zeros_like(places[0])
    for axis in range(count):
        flat = flat * x.shape[axis] + places[axis]
    rows = x.reshape(_product(x.shape[:count]), -1)
    new = updates.reshape(flat.numel(), -1)
    spread = flat.reshape(-1, 1).expand(new.shape)
    return torch.scatter_reduce(rows, 0, spread, new, _REDUCTIONS[reduction]).reshape(x.shape)


@operator("ScatterND")
def _scatter_nd(call: Call) -> fx.Node:
    return call.emit(scatter_nd, call.tensor(0), call.tensor(1), call.tensor(2), call.attribute("reduction", "none"))


def tile(x: torch.Tensor, repeats: Number) -> torch.Tensor:
    """`Tile`."""
    return x.repeat(list(repeats))


@operator("Tile")
def _tile(call: Call) -> fx.Node:
    return call.emit(tile, call.tensor(), call.number(1))


def pad(x: torch.Tensor, pads: Number, mode: str, value: torch.Tensor | None, axes: Number | None) -> torch.Tensor:
    """`Pad`; axes are told by `axes`, or all."""
    axes = list(range(x.dim())) if axes is None else [a % x.dim() for a in axes]
    fill = 0 if value is None else value
    for i, axis in enumerate(axes):
        before, after = pads[i], pads[i + len(axes)]
        length = x.shape[axis]
        if isinstance(before, int) and isinstance(after, int) and before == 0 and after == 0:
            continue
        if mode == "constant":
            sides = [torch.ones([n if a == axis else x.shape[a] for a in range(x.dim())], dtype=x.dtype) * fill for n in (max(before, 0), max(after, 0))]
            x = torch.cat([sides[0].to(x.dtype), torch.narrow(x, axis, max(-before, 0), length + min(before, 0) + min(after, 0)), sides[1].to(x.dtype)], axis)
        else:
            x = torch.index_select(x, axis, _mirrored(torch.arange(-before, length + after), length, mode))
    return x


def _mirrored(places: torch.Tensor, length: Any, mode: str) -> torch.Tensor:
    if mode == "edge":
        return torch.clamp(places, 0, length - 1)
    if mode == "wrap":
        return torch.remainder(places, length)
    turned = torch.remainder(places, 2 * length - 2) if length > 1 else places * 0
    return torch.where(turned < length, turned, 2 * length - 2 - turned)


def pad_zeros(x: torch.Tensor, pads: list[int], value: float) -> torch.Tensor:
    """`Pad` with constant widths and a constant value."""
    half = len(pads) // 2
    return functional.pad(x, [w for i in reversed(range(half)) for w in (pads[i], pads[i + half])], value=value)


@operator("Pad")
def _pad(call: Call) -> fx.Node:
    mode, pads = call.attribute("mode", "constant"), call.number(1)
    value = call.values.constant(call.node.input[2]) if call.has(2) else 0.0
    if mode == "constant" and isinstance(pads, list) and value is not None and not call.has(3):
        return call.emit(pad_zeros, call.tensor(), pads, float(value.item() if hasattr(value, "item") else value))
    return call.emit(pad, call.tensor(), pads, mode, call.tensor_or_none(2), _list(call, 3))


def filled(shape: Number, value: float, dtype: torch.dtype) -> torch.Tensor:
    """`ConstantOfShape`."""
    return torch.full(list(shape), value, dtype=dtype)


@operator("ConstantOfShape")
def _constant_of_shape(call: Call) -> fx.Node:
    import onnx  # noqa: PLC0415 - heavy

    from quant.twin.operators import from_numpy  # noqa: PLC0415

    tensor = call.attribute("value")
    value = torch.zeros(1) if tensor is None else from_numpy(onnx.numpy_helper.to_array(tensor))
    return call.emit(filled, call.number(0), value.reshape(-1)[0].item(), value.dtype)


def counted(start: Any, limit: Any, step: Any, dtype: torch.dtype) -> torch.Tensor:
    """`Range`."""
    return torch.arange(start, limit, step, dtype=dtype)


def counted_like(start: torch.Tensor, limit: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """`Range` between computed values."""
    return torch.arange(start.item(), limit.item(), step.item(), dtype=start.dtype)


@operator("Range")
def _range(call: Call) -> fx.Node:
    names = call.node.input
    kinds = [call.values.constant(n) for n in names]
    if all(call.values.is_number(n) or (k is not None and k.dtype.kind == "i") for n, k in zip(names, kinds, strict=True)):
        dtype = torch.int32 if any(k is not None and k.dtype.itemsize == 4 for k in kinds) else torch.int64  # noqa: PLR2004 - bytes
        return call.emit(counted, *(call.number(i) for i in range(3)), dtype)
    return call.emit(counted_like, *(call.tensor(i) for i in range(3)))


def one_hot(indices: torch.Tensor, depth: Any, values: torch.Tensor, axis: int) -> torch.Tensor:
    """`OneHot`; an index beyond the depth is hot nowhere."""
    axis = axis % (indices.dim() + 1)
    depth = depth[0] if isinstance(depth, list) else depth
    view = [1] * (indices.dim() + 1)
    view[axis] = -1
    hot = _from_front(indices, depth).unsqueeze(axis) == torch.arange(int(depth)).reshape(view)
    return torch.where(hot, values[1], values[0])


@operator("OneHot")
def _one_hot(call: Call) -> fx.Node:
    return call.emit(one_hot, call.tensor(0), call.number(1), call.tensor(2), call.attribute("axis", -1))


def trilu(x: torch.Tensor, k: int, upper: int) -> torch.Tensor:
    """`Trilu`."""
    return torch.triu(x, k) if upper else torch.tril(x, k)


@operator("Trilu")
def _trilu(call: Call) -> fx.Node:
    k = call.number(1)
    return call.emit(trilu, call.tensor(), k[0] if isinstance(k, list) else k or 0, call.attribute("upper", 1))


def depth_to_space(x: torch.Tensor, block: int, mode: str) -> torch.Tensor:
    """`DepthToSpace`."""
    n, c, h, w = x.shape
    if mode == "DCR":
        return x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // block**2, h * block, w * block)
    return x.reshape(n, c // block**2, block, block, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c // block**2, h * block, w * block)


@operator("DepthToSpace")
def _depth_to_space(call: Call) -> fx.Node:
    return call.emit(depth_to_space, call.tensor(), call.attribute("blocksize"), call.attribute("mode", "DCR"))


def space_to_depth(x: torch.Tensor, block: int, mode: str) -> torch.Tensor:
    """`SpaceToDepth`."""
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape(n, c, h // block, block, w // block, block).permute(order).reshape(n, c * block**2, h // block, w // block)


@operator("SpaceToDepth")
def _space_to_depth(call: Call) -> fx.Node:
    return call.emit(space_to_depth, call.tensor(), call.attribute("blocksize"), call.attribute("mode", "DCR"))


def compress(x: torch.Tensor, keep: torch.Tensor, axis: int | None) -> torch.Tensor:
    """`Compress`; what `keep` does not reach is left out."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return torch.index_select(x, axis, torch.nonzero(keep).reshape(-1))


@operator("Compress")
def _compress(call: Call) -> fx.Node:
    return call.emit(compress, call.tensor(0), call.tensor(1), call.attribute("axis"))
