"""What is said of times: which passing candidate is the fastest, and whether it is faster than FP32 at all."""

from __future__ import annotations

from quant.report.document import Choice, Report
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


def choice_sentences(report: Report) -> tuple[str, ...]:
    """What `schemes: auto` chose on each target and why, and that times decided, where they did; nothing where schemes are listed."""
    said = [_choice(found) for found in report.timings.choices]
    timed = any("FP32's time" in step for found in report.timings.choices for step in found.steps)
    return (*said, "Times decide differently on other machines") if timed else tuple(said)


def _choice(found: Choice) -> str:
    chosen = "no scheme is all that was wanted" if found.scheme is None else f"{one_line(found.scheme)} was chosen"
    return f"On {one_line(found.target)} {chosen}: {'; '.join(map(one_line, found.steps))}"
