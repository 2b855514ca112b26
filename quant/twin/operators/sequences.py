"""Attention, rotary positions, recurrent layers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from quant.twin.operators import Call, Unsupported, operator
from quant.twin.operators.elementwise import TORCH_TYPES


def _heads(x: torch.Tensor, count: int) -> torch.Tensor:
    """`[batch, length, heads * width]` as `[batch, heads, length, width]`."""
    return x.reshape(x.shape[0], x.shape[1], count, x.shape[2] // count).transpose(1, 2)


def _bias(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, valid: torch.Tensor | None, past: Any, told: dict[str, Any]) -> torch.Tensor:
    """What is added to the scores: 0 where a query may look, -inf where not, and a float mask."""
    rows, columns = q.shape[2], k.shape[2]
    out = torch.zeros([rows, columns], dtype=q.dtype)
    nothing = torch.tensor(-math.inf, dtype=q.dtype)
    if mask is not None:
        bias = torch.where(mask, torch.zeros((), dtype=q.dtype), nothing) if mask.dtype == torch.bool else mask
        short = columns - bias.shape[-1]
        if not isinstance(short, int) or short > 0:
            bias = torch.cat([bias, torch.full([*bias.shape[:-1], short], -math.inf, dtype=bias.dtype)], -1)
        out = out + bias
    if told["causal"] or told["left"] >= 0 or told["right"] >= 0:
        offset = (valid.reshape(-1, 1, 1, 1) - rows) if valid is not None and past is None else 0 if past is None else past
        ahead = torch.arange(columns).reshape(1, -1) - (torch.arange(rows).reshape(-1, 1) + offset)
        allowed = ahead <= 0 if told["causal"] else torch.ones_like(ahead, dtype=torch.bool)
        allowed = allowed & (-ahead <= told["left"]) if told["left"] >= 0 else allowed
        allowed = allowed & (ahead <= told["right"]) if told["right"] >= 0 else allowed
        out = torch.where(allowed, out, nothing)
    if valid is not None:
        out = torch.where(torch.arange(columns).reshape(1, 1, 1, -1) < valid.reshape(-1, 1, 1, 1), out, nothing)
    return out


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    more: tuple[torch.Tensor | None, ...],
    told: dict[str, Any],
) -> tuple[torch.Tensor, ...]:
    """`Attention`; `more` is (mask, past keys, past values, valid lengths). Gives (result, keys, values, scores)."""
    mask, past_key, past_value, valid = more
    flat = q.dim() == 3  # noqa: PLR2004 - batch, length, all heads
    if flat:
        q, k, v = _heads(q, told["heads"]), _heads(k, told["key_heads"]), _heads(v, told["key_heads"])
    past = None if past_key is None else past_key.shape[2]
    keys = k if past_key is None else torch.cat([past_key, k], 2)
    values = v if past_value is None else torch.cat([past_value, v], 2)
    k, v = keys, values
    bias = _bias(q, k, mask, valid, past, told)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = torch.repeat_interleave(k, groups, 1), torch.repeat_interleave(v, groups, 1)
    factor = torch.tensor(math.sqrt(told["scale"] if told["scale"] is not None else 1 / math.sqrt(q.shape[3])), dtype=q.dtype)
    raw = torch.matmul(q * factor, k.transpose(2, 3) * factor)
    capped = torch.tanh(raw / told["cap"]) * told["cap"] if told["cap"] else raw
    scores = capped + bias
    shares = torch.softmax(scores, -1, dtype=told["precision"])
    shares = torch.where(torch.amax(bias, -1, keepdim=True) == -math.inf, torch.zeros((), dtype=shares.dtype), shares)
    out = torch.matmul(shares.to(q.dtype), v)
    if flat:
        out = out.transpose(1, 2)
        out = out.reshape(out.shape[0], out.shape[1], -1)
    shown = (raw, capped, scores, shares)[told["shown"]].to(q.dtype)
    return out, keys, values, shown


@operator("Attention")
def _attention(call: Call) -> fx.Node | tuple[fx.Node | None, ...]:
    told = {"scale": call.attribute("scale"), "causal": call.attribute("is_causal", 0), "cap": call.attribute("softcap", 0.0)}
    told |= {"heads": call.attribute("q_num_heads"), "key_heads": call.attribute("kv_num_heads"), "shown": call.attribute("qk_matmul_output_mode", 0)}
    told |= {"left": call.attribute("left_window_size", -1), "right": call.attribute("right_window_size", -1)}
    precision = call.attribute("softmax_precision", 0)
    told["precision"] = TORCH_TYPES[precision] if precision else None
    made = call.emit(attention, *(call.tensor(i) for i in range(3)), tuple(call.tensor_or_none(i) for i in range(3, 7)), told)
    return call.each(made)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, places: torch.Tensor | None, told: dict[str, Any]) -> torch.Tensor:
    """`RotaryEmbedding`."""
    flat = x.dim() == 3  # noqa: PLR2004 - batch, length, all heads
    turned = _heads(x, told["heads"]) if flat else x
    cos, sin = (c if places is None else c[places] for c in (cos, sin))
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    width = told["width"] or turned.shape[3]
    part, rest = turned[..., :width], turned[..., width:]
    one, two = (part[..., 0::2], part[..., 1::2]) if told["interleaved"] else (part[..., : width // 2], part[..., width // 2 :])
    real, imaginary = cos * one - sin * two, sin * one + cos * two
    both = torch.stack([real, imaginary], -1).flatten(-2) if told["interleaved"] else torch.cat([real, imaginary], -1)
    out = torch.cat([both, rest], -1)
    return out.transpose(1, 2).reshape(x.shape) if flat else out


@operator("RotaryEmbedding")
def _rotary(call: Call) -> fx.Node:
    told = {"heads": call.attribute("num_heads"), "width": call.attribute("rotary_embedding_dim", 0), "interleaved": call.attribute("interleaved", 0)}
    return call.emit(rotary, *(call.tensor(i) for i in range(3)), call.tensor_or_none(3), told)


_LSTM_ORDER = (0, 2, 3, 1)
"""Where torch's gates (input, forget, cell, output) lie in ONNX's (input, output, forget, cell)."""
_GRU_ORDER = (1, 0, 2)
"""Where torch's gates (reset, update, new) lie in ONNX's (update, reset, new)."""


def _gates(weights: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    parts = torch.chunk(weights, len(order), 0)
    return torch.cat([parts[i] for i in order], 0)


def _parameters(w: torch.Tensor, r: torch.Tensor, b: torch.Tensor | None, direction: int, order: tuple[int, ...]) -> list[torch.Tensor]:
    zeros = torch.zeros(2 * w.shape[1], dtype=w.dtype)
    both = zeros if b is None else b[direction]
    return [_gates(t, order) for t in (w[direction], r[direction], *torch.chunk(both, 2, 0))]


def _one_way(kind: str, x: torch.Tensor, states: list[torch.Tensor], parameters: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    settings = (True, 1, 0.0, False, False, False)  # biases, layers, dropout, training, bidirectional, batch first
    if kind == "LSTM":
        return torch.lstm(x, states, parameters, *settings)
    return torch.gru(x, states[0], parameters, *settings)


def recurrent(
    kind: str,
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    first: tuple[torch.Tensor | None, ...],
    told: dict[str, Any],
) -> tuple[torch.Tensor, ...]:
    """`LSTM`, or `GRU` with the reset after the product: all outputs, then the last of each state."""
    x = x.transpose(0, 1) if told["layout"] else x
    order = _LSTM_ORDER if kind == "LSTM" else _GRU_ORDER
    outputs, lasts = [], []
    for i in range(w.shape[0]):
        backwards = told["direction"] == "reverse" or i == 1
        zero = torch.zeros(1, x.shape[1], r.shape[2], dtype=x.dtype)
        given = [zero if s is None else (s.transpose(0, 1) if told["layout"] else s)[i : i + 1] for s in first]
        y, *last = _one_way(kind, torch.flip(x, [0]) if backwards else x, given, _parameters(w, r, b, i, order))
        outputs.append(torch.flip(y, [0]) if backwards else y)
        lasts.append(last)
    y = torch.stack(outputs, 1)
    states = [torch.cat([last[k] for last in lasts], 0) for k in range(len(first))]
    if told["layout"]:
        return y.permute(2, 0, 1, 3), *(s.transpose(0, 1) for s in states)
    return y, *states


@operator("LSTM", "GRU")
def _recurrent(call: Call) -> fx.Node | tuple[fx.Node | None, ...]:
    kind = call.node.op_type
    usual = ["Sigmoid", "Tanh", "Tanh"] if kind == "LSTM" else ["Sigmoid", "Tanh"]
    given = [a.decode() if isinstance(a, bytes) else a for a in call.attribute("activations", [])]
    if given and [a.lower() for a in given] != [a.lower() for a in usual] * (len(given) // len(usual)):
        raise Unsupported(f"activations {given}")
    if call.has(4):
        raise Unsupported("sequences of several lengths")
    if call.has(7) or call.attribute("clip") is not None or call.attribute("input_forget", 0):
        raise Unsupported("peepholes, clipping or coupled gates")
    if kind == "GRU" and not call.attribute("linear_before_reset", 0):
        return call.otherwise()
    first = tuple(call.tensor_or_none(i) for i in ((5, 6) if kind == "LSTM" else (5,)))
    told = {"direction": call.attribute("direction", "forward"), "layout": call.attribute("layout", 0)}
    return call.each(call.emit(recurrent, kind, *(call.tensor(i) for i in range(3)), call.tensor_or_none(3), first, told))
