"""Which number formats the GPUs of each compute capability compute in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_EVERYWHERE = frozenset({"fp32", "fp16", "int8"})
_AMPERE = _EVERYWHERE | {"bf16", "int4"}
_ADA = _AMPERE | {"fp8"}
_BLACKWELL = _ADA | {"fp4"}

FORMATS: Mapping[str, frozenset[str]] = {
    "sm75": _EVERYWHERE,
    **dict.fromkeys(("sm80", "sm86", "sm87"), _AMPERE),
    **dict.fromkeys(("sm89", "sm90"), _ADA),
    **dict.fromkeys(("sm100", "sm103", "sm120", "sm121"), _BLACKWELL),
}
"""Compute capability -> formats that its GPUs have instructions for."""

_FP8_CONVOLUTIONS = frozenset({"sm89", "sm90"})
"""Compute capabilities for which NVIDIA documents convolutions in FP8; matrix products in FP8 run on newer ones too."""


def lacking(capability: str, formats: Iterable[str]) -> tuple[str, ...]:
    """Those of `formats` that GPUs of `capability` have no instructions for, sorted; none for a capability that is not known.

    Example:
        >>> lacking("sm86", ["fp16", "fp8", "int8"]), lacking("sm90", ["fp8"])
        (('fp8',), ())
    """
    return tuple(sorted(set(formats) - FORMATS[capability])) if capability in FORMATS else ()


def convolve_in_fp8(capabilities: Iterable[str]) -> bool:
    """Whether all GPUs of `capabilities` that have FP8 at all also convolve in it; those without any are left to be refused.

    Example:
        >>> convolve_in_fp8(["sm89", "sm90"]), convolve_in_fp8(["sm89", "sm120"]), convolve_in_fp8(["sm80"])
        (True, False, True)
    """
    return {capability for capability in capabilities if not lacking(capability, ["fp8"])} <= _FP8_CONVOLUTIONS
