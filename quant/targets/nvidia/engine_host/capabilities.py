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


def lacking(capability: str, formats: Iterable[str]) -> tuple[str, ...]:
    """Those of `formats` that GPUs of `capability` have no instructions for, sorted; none for a capability that is not known.

    Example:
        >>> lacking("sm86", ["fp16", "fp8", "int8"]), lacking("sm90", ["fp8"])
        (('fp8',), ())
    """
    return tuple(sorted(set(formats) - FORMATS[capability])) if capability in FORMATS else ()
