"""Products: matrices, convolutions, sums over named axes."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.nn import functional

from quant.twin.operators import Call, Unsupported, operator

_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


@operator("MatMul")
def _matmul(call: Call) -> fx.Node:
    return call.emit(torch.matmul, call.tensor(0), call.tensor(1))


def gemm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, factors: tuple[float, float], turned: tuple[int, int]) -> torch.Tensor:
    """`Gemm`: alpha A B + beta C."""
    alpha, beta = factors
    out = torch.matmul(a.t() if turned[0] else a, b.t() if turned[1] else b)
    out = out if alpha == 1 else out * alpha
    return out if c is None else out + (c if beta == 1 else c * beta)


@operator("Gemm")
def _gemm(call: Call) -> fx.Node:
    factors = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    return call.emit(gemm, call.tensor(0), call.tensor(1), call.tensor_or_none(2), factors, (call.attribute("transA", 0), call.attribute("transB", 0)))


@operator("Einsum")
def _einsum(call: Call) -> fx.Node:
    return call.emit(einsum, call.attribute("equation"), call.tensors())


def einsum(equation: str, operands: list[torch.Tensor]) -> torch.Tensor:
    """`Einsum`."""
    return torch.einsum(equation.replace(" ", ""), *operands)


def same_padding(lengths: Any, kernel: list[int], strides: list[int], dilations: list[int], *, upper: bool) -> list[Any]:
    """Padding for `SAME_UPPER` and `SAME_LOWER` in the order of `torch.nn.functional.pad`: the last axis first.

    Example:
        >>> same_padding([5], [2], [1], [1], upper=True)
        [0, 1]
    """
    sides: list[Any] = []
    for length, k, s, d in reversed(list(zip(lengths, kernel, strides, dilations, strict=True))):
        total = (-(-length // s) - 1) * s + (k - 1) * d + 1 - length
        total = max(total, 0)
        sides += [total // 2, total - total // 2] if upper else [total - total // 2, total // 2]
    return sides


def explicit_padding(pads: list[int]) -> list[int]:
    """ONNX pads (all begins, then all ends) in the order of `torch.nn.functional.pad`.

    Example:
        >>> explicit_padding([1, 2, 3, 4])
        [2, 4, 1, 3]
    """
    half = len(pads) // 2
    return [w for i in reversed(range(half)) for w in (pads[i], pads[i + half])]


def convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, pads: list[int] | str, strides: list[int], dilations: list[int], group: int
) -> torch.Tensor:
    """`Conv`."""
    if isinstance(pads, str):
        x = functional.pad(x, same_padding(x.shape[2:], list(weight.shape[2:]), strides, dilations, upper=pads == "SAME_UPPER"))
        pads = [0] * (2 * len(strides))
    half = len(pads) // 2
    if pads[:half] != pads[half:]:
        x = functional.pad(x, explicit_padding(pads))
        pads = [0] * (2 * half)
    if group == 1 and all(isinstance(n, int) and n == 1 for n in (*weight.shape[2:], *strides)) and not any(pads):
        return _pointwise(x, weight, bias)
    return _CONVOLUTIONS[half](x, weight, bias, strides, pads[:half], dilations, group)


def _pointwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """A convolution with a kernel of one place, as a product of matrices.

    torch computes it by another library on one thread than on several, and the two round differently.
    """
    made = torch.matmul(weight.flatten(1), x.flatten(2))
    made = made if bias is None else made + bias.unsqueeze(1)
    return made.reshape([x.shape[0], weight.shape[0], *x.shape[2:]])


def geometry(call: Call, rank: int) -> tuple[list[int] | str, list[int], list[int]]:
    """Pads (or the rule for them), strides and dilations of a window over `rank` axes."""
    auto = call.attribute("auto_pad", "NOTSET")
    pads = auto if auto.startswith("SAME") else [0] * (2 * rank) if auto == "VALID" else call.attribute("pads", [0] * (2 * rank))
    return pads, call.attribute("strides", [1] * rank), call.attribute("dilations", [1] * rank)


def window_rank(call: Call, position: int = 1) -> int:
    """Number of axes that a window moves along; `position` is the input with the weight.

    Raises:
        Unsupported: Nothing tells.
    """
    for name in ("kernel_shape", "strides", "dilations"):
        if call.attribute(name) is not None:
            return len(call.attribute(name))
    rank = call.values.rank(call.node.input[position])
    if rank is None:
        raise Unsupported("a window of unknown rank")
    return rank - 2


@operator("Conv")
def _conv(call: Call) -> fx.Node:
    rank = window_rank(call)
    if rank not in _CONVOLUTIONS:
        raise Unsupported(f"a convolution over {rank} axes")
    return call.emit(convolution, call.tensor(0), call.tensor(1), call.tensor_or_none(2), *geometry(call, rank), call.attribute("group", 1))


def transposed(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    pads: list[int] | str,
    strides: list[int],
    dilations: list[int],
    group: int,
    more: list[int],
    shape: list[int] | None,
) -> torch.Tensor:
    """`ConvTranspose`: computed without padding, then cut to the shape that is asked for."""
    rank = len(strides)
    out = _TRANSPOSED[rank](x, weight, bias, strides, 0, more if shape is None else 0, group, dilations)
    if shape is None and isinstance(pads, str):
        shape = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    for i in range(rank):
        full = out.shape[2 + i]
        if shape is None:
            assert not isinstance(pads, str), "a rule for padding gives a shape"
            begin, length = pads[i], full - pads[i] - pads[i + rank]
        else:
            total = (x.shape[2 + i] - 1) * strides[i] + more[i] + (weight.shape[2 + i] - 1) * dilations[i] + 1 - shape[i]
            begin, length = (total // 2 if pads == "SAME_UPPER" else total - total // 2), shape[i]
            if begin + length > full:
                room = [0, 0] * (rank - 1 - i) + [0, begin + length - full]
                out = functional.pad(out, room) if bias is None else functional.pad(out, room) + _bias_in_room(out, bias, i, begin + length)
        out = torch.narrow(out, 2 + i, begin, length)
    return out


def _bias_in_room(out: torch.Tensor, bias: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    view = [1] * out.dim()
    view[2 + axis] = length
    beyond = (torch.arange(length) >= out.shape[2 + axis]).to(bias.dtype).reshape(view)
    return beyond * bias.reshape([1, -1] + [1] * (out.dim() - 2))


@operator("ConvTranspose")
def _conv_transpose(call: Call) -> fx.Node:
    rank = window_rank(call)
    if rank not in _TRANSPOSED:
        raise Unsupported(f"a transposed convolution over {rank} axes")
    more, shape = call.attribute("output_padding", [0] * rank), call.attribute("output_shape")
    operands = call.tensor(0), call.tensor(1), call.tensor_or_none(2)
    return call.emit(transposed, *operands, *geometry(call, rank), call.attribute("group", 1), more, None if shape is None else shape[-rank:])


def matmul_integer(a: torch.Tensor, b: torch.Tensor, a_zero: torch.Tensor | None, b_zero: torch.Tensor | None) -> torch.Tensor:
    """`MatMulInteger`, exact: in float64, which holds every sum of fewer than 2**38 products of 8-bit codes."""
    left = a.to(torch.float64) if a_zero is None else a.to(torch.float64) - rows(a_zero)
    right = b.to(torch.float64) if b_zero is None else b.to(torch.float64) - b_zero.to(torch.float64)
    return torch.matmul(left, right).to(torch.int32)


def rows(zero: torch.Tensor) -> torch.Tensor:
    """One value for each row of a left operand, to be spread along it; in float64."""
    return zero.to(torch.float64).unsqueeze(-1) if zero.dim() == 1 and zero.numel() > 1 else zero.to(torch.float64)


@operator("MatMulInteger")
def _matmul_integer(call: Call) -> fx.Node:
    return call.emit(matmul_integer, call.tensor(0), call.tensor(1), call.tensor_or_none(2), call.tensor_or_none(3))


def convolution_integer(
    x: torch.Tensor,
    weight: torch.Tensor,
    x_zero: torch.Tensor | None,
    weight_zero: torch.Tensor | None,
    pads: list[int] | str,
    strides: list[int],
    dilations: list[int],
    group: int,
) -> torch.Tensor:
    """`ConvInteger`, exact: in float64."""
    left = x.to(torch.float64) if x_zero is None else x.to(torch.float64) - x_zero.to(torch.float64)
    right = weight.to(torch.float64)
    if weight_zero is not None:
        right = right - weight_zero.to(torch.float64).reshape([-1] + [1] * (weight.dim() - 1))
    return convolution(left, right, None, pads, strides, dilations, group).to(torch.int32)


@operator("ConvInteger")
def _conv_integer(call: Call) -> fx.Node:
    operands = call.tensor(0), call.tensor(1), call.tensor_or_none(2), call.tensor_or_none(3)
    return call.emit(convolution_integer, *operands, *geometry(call, window_rank(call)), call.attribute("group", 1))
