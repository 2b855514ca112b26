"""What is said of a run whose recipe has `on_fail`, where nothing passed on a target."""

from __future__ import annotations

from collections.abc import Sequence

from quant.core.documents import Decision, Document
from quant.report.words import one_line

_FP32 = "fp32"


class Delivered(Document):
    """What is delivered on one target, where the recipe says what to do when nothing passes.

    Args:
        target: The serving engine.
        scheme: The candidate, the fallback, or `fp32`; None when FP32 itself fails there.
        artifact: Its folder within the run's; None likewise.
        reason: What became of all that stood before it; empty where a candidate of the recipe passes.
    """

    target: str
    scheme: str | None
    artifact: str | None
    reason: str


def delivered_verdict(found: Sequence[Delivered]) -> Decision | None:
    """`pass` when something is delivered on any target, `fail` when FP32 itself fails on all; None where no fallback was needed."""
    if all(not one.reason for one in found):
        return None
    return "pass" if any(one.scheme is not None for one in found) else "fail"


def delivered_sentence(found: Sequence[Delivered]) -> str:
    """The verdict in one sentence, target by target; empty where no fallback was needed.

    Example:
        >>> delivered_sentence([Delivered(target="onnxruntime", scheme="fp16", artifact="artifacts/onnxruntime/fp16", reason="int8 fails")])
        'Pass: on onnxruntime the fallback fp16 is delivered (int8 fails).'
    """
    verdict = delivered_verdict(found)
    if verdict is None:
        return ""
    return f"{verdict.capitalize()}: {'; '.join(_said(one) for one in found)}."


def _said(one: Delivered) -> str:
    place = f"on {one_line(one.target)}"
    if one.scheme is None:
        return f"{place} nothing can be delivered ({one_line(one.reason)})"
    if not one.reason:
        return f"{place} {one_line(one.scheme)} passes"
    what = "FP32 is delivered" if one.scheme == _FP32 else f"the fallback {one_line(one.scheme)} is delivered"
    return f"{place} {what} ({one_line(one.reason)})"
