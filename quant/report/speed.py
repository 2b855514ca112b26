"""What is said of times: which passing candidate is the fastest, and whether it is faster than FP32 at all."""

from __future__ import annotations

from quant.report.document import Report
from quant.report.words import fixed, one_line


def fastest_sentence(report: Report) -> str:
    """The fastest candidate that passes, beside FP32's time; empty when none passes or none was timed."""
    name = report.timings.fastest_passing
    if not name:
        return ""
    ratio = next((row.ratio for row in report.timings.latency if f"{row.scheme} on {row.target}" == name), None)
    if ratio is None:
        return f"Fastest that passes: {one_line(name)}"
    shown = fixed(ratio)
    if round(ratio, 2) >= 1:  # as it is shown: "at 1.00 of FP32's time" would be no gain
        return f"No candidate that passes is faster than FP32 here ({one_line(name)}: {shown})"
    return f"Fastest that passes: {one_line(name)}, at {shown} of FP32's time"
