"""The report as short Markdown (GitHub's), in the order of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quant.report.agreement import agreement_sentences, output_rows
from quant.report.audit import audit_sentences, finding
from quant.report.document import Candidate, Report
from quant.report.gate_row import GateRow
from quant.report.mixing import MixingRow, mixing_sentence, step_rows
from quant.report.rows import ICONS, candidate_rows, latency_of
from quant.report.sentence import needed, title
from quant.report.speed import choice_sentences, fastest_sentence
from quant.report.training import epoch_head, epoch_rows, training_sentence
from quant.report.transforms import transform_rows
from quant.report.words import (
    NOTHING,
    count,
    drop,
    fixed,
    how_sure,
    in_unit,
    limit,
    looked_at,
    lower,
    milliseconds,
    number,
    one_line,
    seconds,
    size,
    small_share,
    upper,
)

_MOST_LAYERS, _MOST_TENSORS = 20, 10
_ESCAPES = str.maketrans(
    {c: f"&#{ord(c)};" for c in "|`\\*[]~$@#!"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "_": "\\_"},
)


def markdown(report: Report) -> str:
    """The text of `report.md`."""
    parts = [
        f"# {escaped(report.name)}",
        f"**{ICONS[report.verdict]} {escaped(report.sentence)}**",
        _sentence(fastest_sentence(report)),
        *map(_sentence, choice_sentences(report)),
        escaped(report.description),
        *_baseline(report),
        *_candidates(report),
        *(part for row in report.timings.mixing for part in _mixing(row)),
        *(part for candidate in report.candidates for part in _details(candidate)),
        *_calibration(report),
        *_latency(report),
        *_data_and_model(report),
        "## Provenance",
        _table(
            ("what", "SHA-256"),
            [("results", report.results_digest or NOTHING), ("FP32 graph", report.baseline.model_sha256)]
            + ([("samples", report.data.samples_sha256)] if report.data.samples_sha256 else [])
            + ([("calibration table", report.calibration.table_sha256)] if report.calibration else []),
        ),
        f"Started {escaped(report.timings.started)}, took {seconds(report.timings.seconds)}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _mixing(row: MixingRow) -> list[str]:
    head = ("tried", "quantized", "predicted error", "measured error", f"cost, {row.unit}", "passes", "what it goes by")
    left = [(out.layer, " ".join(out.why)) for out in row.left_out[:_MOST_LAYERS]]
    return [
        f"## Mixed precision on {escaped(row.target)}",
        escaped(mixing_sentence(row)),
        *map(escaped, row.notes),
        _table(head, step_rows(row.steps)) if row.steps else "",
        _table(("layer in more bits", "why"), left) if left else "",
    ]


def escaped(text: str) -> str:
    r"""`text` on one line, so that Markdown shows it as it is, also in a table.

    Example:
        >>> escaped("a|b `c`\n<d>_e")
        'a&#124;b &#96;c&#96; &lt;d&gt;\\_e'
    """
    return one_line(text).translate(_ESCAPES).replace("://", "&#58;//")


def _sentence(text: str) -> str:
    return f"{escaped(text)}." if text else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are escaped here."""
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(escaped(cell) for cell in row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _baseline(report: Report) -> list[str]:
    base = report.baseline
    values = [(name, in_unit(value, base.units.get(name, ""))) for name, value in sorted(base.metrics.items())]
    return ["## Baseline", f"FP32 on {count(base.samples, 'sample')}.", _table(("metric", "value"), [*values, ("size", size(base.size_bytes))])]


def _candidates(report: Report) -> list[str]:
    head = ("#", "candidate", "verdict", "metric", "drop", "upper bound", "allowed", "time, FP32 = 1", "size", "size, FP32 = 1", "cosine", "SQNR", "notes")
    rows = [
        (
            *(str(r.number), r.title, f"{r.icon} {r.verdict}", f"{r.metric} {r.value}", r.drop, r.bound, r.allowed),
            *(r.time, r.size, r.size_ratio, r.cosine, r.sqnr, "; ".join(r.notes)),
        )
        for r in candidate_rows(report)
    ]
    return ["## Candidates", _table(head, rows) if rows else "There was no candidate."]


def _details(candidate: Candidate) -> list[str]:
    if candidate.status != "measured":
        return []
    parts = [f"### {escaped(title(candidate))}"]
    parts += _verdicts(candidate)
    if candidate.transforms:
        parts.append(_table(("transform", "kept", "error before", "error after", "layers", "why"), transform_rows(candidate.transforms)))
    if candidate.training is not None:
        parts += [escaped(training_sentence(candidate.training)), _table(epoch_head(candidate.training), epoch_rows(candidate.training))]
    left = [c for c in candidate.plan if c.format in {"fp32", "float32"}]
    if candidate.plan:
        parts.append(f"{count(len(candidate.plan), 'layer')} in the plan, {len(left)} left in FP32.")
    if left:
        parts.append(_table(("layer in FP32", "operator", "reason"), [(c.layer, c.op, c.reason) for c in left[:_MOST_LAYERS]]))
        parts.append(_left_out(len(left) - _MOST_LAYERS, "layer"))
    parts.append(escaped(" ".join(audit_sentences(candidate))))
    wrong = [row for row in candidate.audit if finding(candidate, row) in {"differs", "not found"}]
    if wrong:
        parts.append(_table(("layer", "planned", "runs", "kernel"), [(r.layer, r.planned, r.runs, r.kernel) for r in wrong[:_MOST_LAYERS]]))
        parts.append(_left_out(len(wrong) - _MOST_LAYERS, "layer"))
    parts.append(escaped(" ".join(agreement_sentences(candidate.agreement))))
    if candidate.agreement is not None and candidate.agreement.outputs:
        parts.append(_table(("output", "noise of the format", "deviation of the engine", "limit", "agrees"), output_rows(candidate.agreement)))
    if candidate.files:
        parts.append(_table(("file", "SHA-256"), sorted(candidate.files.items())))
    return parts


def _verdicts(candidate: Candidate) -> list[str]:
    parts: list[str] = []
    if candidate.gates:
        head = ("gate", "verdict", "FP32", "candidate", "drop", "lower bound", "upper bound", "allowed", "samples", "method")
        parts.append(_table(head, [_gate(gate) for gate in candidate.gates]))
    if candidate.slices:
        columns = ("slice", "samples", "FP32", "candidate", "drop", "lower bound", "upper bound")
        parts += [_table(columns, [_slice(gate) for gate in candidate.slices]), escaped(f"{how_sure(candidate.slices[0].verdict, shown=True)}.")]
    return parts


def _slice(row: GateRow) -> tuple[str, ...]:
    v, unit = row.verdict, row.unit
    bounds = drop(v.drop, unit, relative=v.relative), lower(v.drop_lower, unit, relative=v.relative), upper(v.drop_upper, unit, relative=v.relative)
    return row.title, looked_at(v), in_unit(v.baseline, unit), in_unit(v.value, unit), *bounds


def _gate(gate: GateRow) -> tuple[str, ...]:
    v, unit = gate.verdict, gate.unit
    verdict = f"{ICONS[v.decision]} {v.decision}" + (f": {needed(gate)}" if v.decision == "inconclusive" else "")
    bounds = drop(v.drop, unit, relative=v.relative), lower(v.drop_lower, unit, relative=v.relative), upper(v.drop_upper, unit, relative=v.relative)
    return gate.title, verdict, in_unit(v.baseline, unit), in_unit(v.value, unit), *bounds, limit(v, unit), looked_at(v), f"{v.method}; {how_sure(v)}"


def _left_out(more: int, noun: str) -> str:
    return f"… and {count(more, noun)} more." if more > 0 else ""


def _calibration(report: Report) -> list[str]:
    found = report.calibration
    if found is None:
        return []
    rows = sorted(found.ranges, key=lambda row: (-row.clipped, row.tensor))
    head = ("tensor", "clipped", "minimum", "maximum", "RMS", "range from", "range to")
    table = _table(
        head,
        [
            (row.tensor, small_share(row.clipped), number(row.minimum), number(row.maximum), number(row.rms), number(row.low), number(row.high))
            for row in rows[:_MOST_TENSORS]
        ],
    )
    said = f"{escaped(found.calibrator)} on {count(found.samples, 'sample')}; the most clipped of {count(len(rows), 'tensor')}:"
    return ["## Calibration", said, table, _left_out(len(rows) - _MOST_TENSORS, "tensor")]


def _latency(report: Report) -> list[str]:
    times = report.timings
    emulated = {(c.scheme, c.target) for c in report.candidates if c.status == "measured" and latency_of(report, c) is None}
    rows = [
        (
            f"{t.scheme} on {t.target}",
            milliseconds(t.p50_ms),
            milliseconds(t.p90_ms),
            milliseconds(t.p99_ms),
            number(t.throughput_per_s),
            f"{fixed(t.ratio)} ({fixed(t.ratio_low)} to {fixed(t.ratio_high)})",
            NOTHING if t.first_inference_s is None else seconds(t.first_inference_s),
            NOTHING if t.peak_memory_bytes is None else size(t.peak_memory_bytes),
        )
        for t in times.latency
        if (t.scheme, t.target) not in emulated
    ]
    if not rows:
        return []
    head = ("artifact", "p50", "p90", "p99", "samples a second", "time, FP32 = 1", "first inference", "peak memory")
    return ["## Latency", f"{count(times.threads, 'thread')}, {count(times.batch_size, 'sample')} a request.", _table(head, rows)]


def _data_and_model(report: Report) -> list[str]:
    data, model = report.data, report.model
    parts = ["## Data", *(f"> **Note:** {escaped(note)}" for note in data.notes), f"From {escaped(data.source)}."]
    parts.append(_table(("role", "samples"), [(role, f"{n:,}") for role, n in data.roles.items()]))
    parts += [
        "## Model",
        f"{escaped(model.source)} ({escaped(model.kind)}), {model.parameters:,} parameters, {count(model.layers, 'layer')}, opset {model.opset}.",
    ]
    parts += [f"> {escaped(note)}" for note in model.notes]
    parts.append("\n".join(f"{i}. {escaped(step)}" for i, step in enumerate(model.steps, 1)))
    parts += ["## Environment", _table(("what", "value"), sorted(report.environment.items()))]
    return parts
