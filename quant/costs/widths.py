"""How many bits formats take, for weights and for what they multiply."""

from __future__ import annotations

from quant.core.formats import FORMATS, GRIDS
from quant.core.registry import did_you_mean
from quant.errors import PlanError

_WHOLE_TENSORS = 8
"""Bits from which on activations are quantized along with weights; with fewer, weights alone are, in blocks."""


def weight_bits(number_format: str) -> int:
    """Bits of one weight.

    Raises:
        PlanError: There is no such format.
    """
    if number_format not in FORMATS:
        raise PlanError(f"there is no format {number_format!r}", hint=did_you_mean(number_format, list(FORMATS)))
    return FORMATS[number_format].encoding.bits


def carried(number_format: str, body: str) -> str:
    """The format of the activations of a layer in `number_format`, when everything else is in `body`.

    Example:
        >>> carried("int8", "fp16"), carried("int4", "fp16"), carried("fp32", "fp16")
        ('int8', 'fp16', 'fp32')
    """
    bits = weight_bits(number_format)
    return body if number_format in GRIDS and bits < _WHOLE_TENSORS else number_format


def activation_bits(number_format: str, body: str) -> int:
    """Bits of one activation that a layer in `number_format` reads, when everything else is in `body`.

    Example:
        >>> activation_bits("int8", "fp16"), activation_bits("int4", "fp16"), activation_bits("fp32", "fp16")
        (8, 16, 32)
    """
    return weight_bits(carried(number_format, body))


def stored_bits(number_format: str, body: str, block: int) -> float:
    """Bits that one weight takes in a file: those of fewer than 8 share a scale in `body` in blocks of `block`.

    Example:
        >>> stored_bits("int8", "fp32", 32), stored_bits("int4", "fp16", 32)
        (8.0, 4.5)
    """
    bits = weight_bits(number_format)
    shared = weight_bits(body) / block if number_format in GRIDS and bits < _WHOLE_TENSORS else 0.0
    return bits + shared
