"""Normalizations, always as at inference, and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from quant.twin.operators import Call, Unsupported, operator
from quant.twin.operators.elementwise import TORCH_TYPES
from quant.twin.operators.numbers import Number


def _along(values: torch.Tensor, rank: int) -> torch.Tensor:
    """One value a channel, to be spread over the axes behind it."""
    return values.reshape([1, -1] + [1] * (rank - 2))


def batch_norm(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, epsilon: float) -> torch.Tensor:
    """`BatchNormalization` with the statistics that were learned."""
    return functional.batch_norm(x, mean, variance, scale, bias, training=False, eps=epsilon)


@operator("BatchNormalization")
def _batch_norm(call: Call) -> fx.Node:
    if call.attribute("training_mode", 0):
        raise Unsupported("batch normalization in training mode")
    return call.emit(batch_norm, *(call.tensor(i) for i in range(5)), call.attribute("epsilon", 1e-5))


def instance_norm(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor, epsilon: float) -> torch.Tensor:
    """`InstanceNormalization`."""
    return functional.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@operator("InstanceNormalization")
def _instance_norm(call: Call) -> fx.Node:
    return call.emit(instance_norm, *(call.tensor(i) for i in range(3)), call.attribute("epsilon", 1e-5))


def group_norm(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor, groups: int, epsilon: float) -> torch.Tensor:
    """`GroupNormalization`."""
    return functional.group_norm(x, groups, scale, bias, epsilon)


@operator("GroupNormalization")
def _group_norm(call: Call) -> fx.Node:
    if call.opset < 21:  # noqa: PLR2004 - there, scales belonged to groups
        raise Unsupported("group normalization before opset 21")
    return call.emit(group_norm, *(call.tensor(i) for i in range(3)), call.attribute("num_groups"), call.attribute("epsilon", 1e-5))


def layer_norm(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, axis: int, epsilon: float) -> torch.Tensor:
    """`LayerNormalization` over all axes from `axis` on."""
    lengths = list(x.shape[axis % x.dim() :])
    if list(scale.shape) == lengths and (bias is None or list(bias.shape) == lengths):
        return functional.layer_norm(x, lengths, scale, bias, epsilon)
    out = functional.layer_norm(x, lengths, None, None, epsilon) * scale
    return out if bias is None else out + bias


def layer_norm_all(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, axis: int, epsilon: float) -> tuple[torch.Tensor, ...]:
    """`LayerNormalization`, and the mean and the inverse deviation that it used."""
    axes = list(range(axis % x.dim(), x.dim()))
    mean = x.mean(axes, keepdim=True)
    inverse = torch.rsqrt(((x - mean) ** 2).mean(axes, keepdim=True) + epsilon)
    return layer_norm(x, scale, bias, axis, epsilon), mean, inverse


@operator("LayerNormalization")
def _layer_norm(call: Call) -> fx.Node | tuple[fx.Node | None, ...]:
    operands = call.tensor(0), call.tensor(1), call.tensor_or_none(2), call.attribute("axis", -1), call.attribute("epsilon", 1e-5)
    if len(call.node.output) > 1:
        return call.each(call.emit(layer_norm_all, *operands))
    return call.emit(layer_norm, *operands)


def rms_norm(x: torch.Tensor, scale: torch.Tensor, axis: int, epsilon: float, stash: torch.dtype) -> torch.Tensor:
    """`RMSNormalization`."""
    wide = x.to(stash)
    mean = (wide * wide).mean(list(range(axis % x.dim(), x.dim())), keepdim=True)
    return (wide * torch.rsqrt(mean + epsilon)).to(x.dtype) * scale


@operator("RMSNormalization")
def _rms_norm(call: Call) -> fx.Node:
    stash = TORCH_TYPES[call.attribute("stash_type", 1)]
    return call.emit(rms_norm, call.tensor(0), call.tensor(1), call.attribute("axis", -1), call.attribute("epsilon", 1e-5), stash)


def lp_norm(x: torch.Tensor, axis: int, p: int) -> torch.Tensor:
    """`LpNormalization`; what has no length stays 0."""
    length = x.abs().sum(axis, keepdim=True) if p == 1 else torch.sqrt((x * x).sum(axis, keepdim=True))
    return torch.where(length == 0, torch.zeros_like(x), x / length)


@operator("LpNormalization")
def _lp_norm(call: Call) -> fx.Node:
    return call.emit(lp_norm, call.tensor(), call.attribute("axis", -1), call.attribute("p", 2))


def mean_variance(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    """`MeanVarianceNormalization`."""
    mean = x.mean(axes, keepdim=True)
    deviation = torch.sqrt((x * x).mean(axes, keepdim=True) - mean * mean)
    return (x - mean) / (deviation + 1e-9)


@operator("MeanVarianceNormalization")
def _mean_variance(call: Call) -> fx.Node:
    return call.emit(mean_variance, call.tensor(), call.attribute("axes", [0, 2, 3]))


def local_response(x: torch.Tensor, size: int, alpha: float, beta: float, bias: float) -> torch.Tensor:
    """`LRN`: the window reaches further forward where its size is even."""
    squares = functional.pad(x * x, [0, 0] * (x.dim() - 2) + [(size - 1) // 2, size - 1 - (size - 1) // 2])
    channels = x.shape[1]
    total = squares[:, 0:channels]
    for i in range(1, size):
        total = total + squares[:, i : i + channels]
    return x / torch.pow(bias + alpha / size * total, beta)


@operator("LRN")
def _local_response(call: Call) -> fx.Node:
    return call.emit(
        local_response, call.tensor(), call.attribute("size"), call.attribute("alpha", 1e-4), call.attribute("beta", 0.75), call.attribute("bias", 1.0)
    )


def _sum(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype)


def _mean(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    return torch.mean(x, axes, keepdim=keep) if x.is_floating_point() else _sum(x, axes, keep) // _count(x, axes)


def _count(x: torch.Tensor, axes: list[int]) -> Any:
    out = 1
    for axis in axes:
        out = out * x.shape[axis]
    return out


def _extreme(x: torch.Tensor, axes: list[int], keep: bool, *, top: bool) -> torch.Tensor:
    if x.numel() == 0:
        kind = torch.finfo(x.dtype) if x.is_floating_point() else None
        worst = (not top) if x.dtype == torch.bool else (-torch.inf if top else torch.inf) if kind else _limit(x.dtype, low=top)
        shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
        full = torch.full(shape, worst, dtype=x.dtype)
        return full if keep else full.squeeze(tuple(axes))
    if x.dtype == torch.bool:
        return _extreme(x.to(torch.uint8), axes, keep, top=top).to(torch.bool)
    return torch.amax(x, axes, keepdim=keep) if top else torch.amin(x, axes, keepdim=keep)


def _limit(dtype: torch.dtype, *, low: bool) -> int:
    return torch.iinfo(dtype).min if low else torch.iinfo(dtype).max


def _max(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    return _extreme(x, axes, keep, top=True)


def _min(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    return _extreme(x, axes, keep, top=False)


def _prod(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep, dtype=x.dtype)
    return x


def _log_sum_exp(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    if x.numel() == 0:
        return torch.log(_sum(torch.exp(x), axes, keep))
    return torch.logsumexp(x, axes, keepdim=keep)


def _l2(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    return torch.sqrt(_sum(x * x, axes, keep))


def _l1(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    return _sum(torch.abs(x), axes, keep)


def _log_sum(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    return torch.log(_sum(x, axes, keep))


def _sum_square(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    return _sum(x * x, axes, keep)


_REDUCTIONS: dict[str, Callable[[torch.Tensor, list[int], bool], torch.Tensor]] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _max,
    "ReduceMean": _mean,
    "ReduceMin": _min,
    "ReduceProd": _prod,
    "ReduceSum": _sum,
    "ReduceSumSquare": _sum_square,
}


def reduced(x: torch.Tensor, op_type: str, axes: Number | None, keep: int, nothing: int) -> torch.Tensor:
    """A reduction; without axes over all, or over none where `nothing` says so."""
    if axes is None or len(axes) == 0:
        if nothing:
            return {"ReduceL1": torch.abs, "ReduceL2": torch.abs, "ReduceSumSquare": torch.square, "ReduceLogSum": torch.log}.get(op_type, torch.clone)(x)
        axes = list(range(x.dim()))
    return _REDUCTIONS[op_type](x, [a % max(x.dim(), 1) for a in axes], bool(keep)) if x.dim() else x


@operator(*_REDUCTIONS)
def _reduce(call: Call) -> fx.Node:
    axes = call.number(1) if call.has(1) else call.attribute("axes")
    axes = [axes] if isinstance(axes, int) else axes
    return call.emit(reduced, call.tensor(), call.node.op_type, axes, call.attribute("keepdims", 1), call.attribute("noop_with_empty_axes", 0))


def index_of_extreme(x: torch.Tensor, axis: int, keep: int, last: int, top: bool) -> torch.Tensor:
    """`ArgMax`, `ArgMin`."""
    pick = torch.argmax if top else torch.argmin
    if last:
        return x.shape[axis] - 1 - pick(torch.flip(x, [axis]), axis, keepdim=bool(keep))
    return pick(x, axis, keepdim=bool(keep))


@operator("ArgMax", "ArgMin")
def _index_of_extreme(call: Call) -> fx.Node:
    told = call.attribute("axis", 0), call.attribute("keepdims", 1), call.attribute("select_last_index", 0)
    return call.emit(index_of_extreme, call.tensor(), *told, call.node.op_type == "ArgMax")


def top_k(x: torch.Tensor, k: Any, axis: int, largest: int, ordered: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`TopK`; equal values come in the order of their places."""
    del ordered  # an order is always given
    k = k[0] if isinstance(k, list) else k
    values, places = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return torch.narrow(values, axis, 0, k), torch.narrow(places, axis, 0, k)


@operator("TopK")
def _top_k(call: Call) -> tuple[fx.Node | None, ...]:
    return call.each(call.emit(top_k, call.tensor(), call.number(1), call.attribute("axis", -1), call.attribute("largest", 1), call.attribute("sorted", 1)))


def running_sum(x: torch.Tensor, axis: Any, exclusive: int, backwards: int) -> torch.Tensor:
    """`CumSum`."""
    axis = axis[0] if isinstance(axis, list) else axis
    x = torch.flip(x, [axis]) if backwards else x
    out = torch.cumsum(x, axis, dtype=x.dtype)
    out = out - x if exclusive else out
    return torch.flip(out, [axis]) if backwards else out


@operator("CumSum")
def _running_sum(call: Call) -> fx.Node:
    return call.emit(running_sum, call.tensor(), call.number(1), call.attribute("exclusive", 0), call.attribute("reverse", 0))


def global_pool(x: torch.Tensor, top: bool) -> torch.Tensor:
    """`GlobalAveragePool`, `GlobalMaxPool`."""
    axes = list(range(2, x.dim()))
    return torch.amax(x, axes, keepdim=True) if top else torch.mean(x, axes, keepdim=True)


@operator("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(call: Call) -> fx.Node:
    return call.emit(global_pool, call.tensor(), call.node.op_type == "GlobalMaxPool")
