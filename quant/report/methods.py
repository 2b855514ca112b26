"""How each kind of number in a report was got: what was done, on how many samples, how sure it is, and the command that does it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quant.report.document import Report
from quant.report.words import count, how_sure, listed, looked_at, one_line

_RUN = "quant run recipe.yaml --output RUN"


@dataclass(frozen=True)
class Method:
    """How numbers of one kind were got.

    Args:
        key: What links lead to: `how-` and this.
        title: What the numbers are.
        text: What was done.
        command: What does it again, in the folder of the run.
    """

    key: str
    title: str
    text: str
    command: str = _RUN


LADDER = Method(
    "off",
    "Agreement and ladder",
    "The same inputs go through FP32, through plain ONNX arithmetic on the quantized graph, and through the engine. Power of the differences over that of "
    "the output, in dB: FP32 to plain arithmetic is the noise of the format, plain arithmetic to the engine its deviation. The limit is what rounding "
    "alone stays below with 99.9 % confidence (F distribution over the rows).",
    "quant ladder recipe.yaml",
)
"""How far something is off the plain meaning of its graph."""


def methods(report: Report) -> tuple[Method, ...]:
    """Every kind of number that `report` shows."""
    return tuple(_methods(report))


def _methods(report: Report) -> Iterator[Method]:
    samples = count(report.baseline.samples, "evaluation sample")
    yield Method("verdict", "Verdict", _verdict(report))
    yield Method(
        "counts",
        "Counts and sizes of the model",
        "Counted in the FP32 graph as it was brought in: weights, and operations that multiply or look rows up. Samples are counted after duplicates are gone.",
        "quant inspect MODEL",
    )
    text = f"Computed from the predictions of {samples}, the same ones for FP32 and for every candidate; FP32 runs once in ONNX Runtime."
    yield Method("metric", "Metrics", text if report.baseline.metrics else "No metric was asked for.", "quant evaluate recipe.yaml")
    yield Method("drop", "Drop and its bounds", _drop(report))
    yield Method(
        "closeness",
        "Closeness to FP32",
        f"Outputs of the artifact in its engine against FP32's on {samples}, without labels. SQNR is the power of FP32's output over that of the difference; "
        "the cosine is taken sample by sample.",
    )
    yield from _of_times(report)
    yield Method("size", "Size", "Bytes of all files of the artifact together; the ratio is to the FP32 artifact of the same engine.")
    yield from _of_plans(report)
    if report.calibration is not None:
        seen = count(report.calibration.samples, "calibration sample")
        text = f"One streaming pass over {seen} kept the extremes and a histogram of each tensor; {one_line(report.calibration.calibrator)} chose the range."
        clipped = "Clipped is the share of the values seen that lie outside of it, from the histogram (bins no wider than 1/512 of their values)."
        yield Method("range", "Ranges", f"{text} {clipped}", "quant calibrate recipe.yaml --output TABLE")
    if any(c.audit or c.unaudited for c in report.candidates):
        text = "Read from the graph that the engine itself shows after it has loaded the artifact, layer by layer; nothing is assumed from the plan."
        yield Method("audit", "Audit", text, "quant audit ARTIFACT")
    yield LADDER


def _verdict(report: Report) -> str:
    if not any(c.gates for c in report.candidates):
        return "No gate was asked for, so that nothing is judged; outputs are compared with FP32's all the same."
    return (
        "A candidate passes when the upper bound of its drop is within what the gate allows, in every gate; it fails when the lower bound is beyond, or when "
        "its engine parts from the plan; what lies between is inconclusive. The run passes when a candidate does."
    )


def _drop(report: Report) -> str:
    gates = [gate.verdict for c in report.candidates for gate in c.gates]
    if not gates:
        return "No gate was asked for."
    how = listed(dict.fromkeys(one_line(v.method) for v in gates))
    looked = listed(dict.fromkeys(f"{looked_at(v)} paired samples" for v in gates))
    sure = listed(dict.fromkeys(how_sure(v) for v in gates))
    return f"How much worse than FP32 on the same samples ({looked}). Bounds: {how}; {sure}."


def _of_times(report: Report) -> Iterator[Method]:
    times = report.timings
    if not times.latency:
        yield Method("time", "Times", "Nothing was timed.")
    else:
        asked = max(row.requests for row in times.latency)
        many = f"{count(asked, 'request')} each, " if asked else ""
        yield Method(
            "time",
            "Times",
            f"All artifacts of an engine take turns on the same request, {many}"
            f"{count(times.threads, 'thread')}, {count(times.batch_size, 'sample')} a request, after a warm-up. "
            "The ratio is the median of the time over FP32's in the same round, its interval order statistics (95 %). "
            "p50, p90 and p99 are percentiles of single requests; throughput is at the mean time.",
        )
        yield Method("start", "First inference and memory", "Load and first request in a fresh process; peak resident memory of that process.")
    yield Method("stages", "Time of stages", "By a clock that never jumps; a stage whose result was already there takes none.")


def _of_plans(report: Report) -> Iterator[Method]:
    mixing = report.timings.mixing
    if any(c.transforms for c in report.candidates):
        text = (
            "Squared error of the quantized outputs, over that of their square, with and without the transform, "
            "on search samples, or on calibration samples that did not guide it."
        )
        yield Method("transform", "Transforms", text)
    if any(c.training for c in report.candidates):
        yield Method("training", "Training", "Losses over the training samples while weights changed, and on search samples after each epoch.")
    if not mixing:
        return
    how = listed(dict.fromkeys(f"{one_line(m.measure)} by {one_line(m.estimator)} on {count(m.samples, 'search sample')}" for m in mixing))
    text = f"What one layer alone in that format does to the outputs, all others in FP32, with its standard error: {how}."
    yield Method("effect", "Sensitivity", text, "quant profile recipe.yaml")
    costs = listed(dict.fromkeys(f"{one_line(m.cost)}{' (estimated)' if m.estimated else ''}, in {one_line(m.unit)}" for m in mixing))
    text = f"Predicted: effects of layers added up. Measured: the whole plan on search samples, with its standard error. Costs: {costs}."
    yield Method("plan", "Plans of the front", text, "quant plan recipe.yaml")
