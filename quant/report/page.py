"""The report as one HTML page that needs nothing else: no request, no font, one script of its own that works on what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from quant.core.documents import AuditRow, LayerChoice
from quant.report.agreement import agreement_sentences, output_rows
from quant.report.audit import Finding, audit_sentences, finding
from quant.report.document import Candidate, RangeRow, Report
from quant.report.front import draw_front
from quant.report.gate_row import GateRow
from quant.report.health import health_sentences, remarks
from quant.report.ladder import Ladder, ladder_verdict, rung_rows
from quant.report.lanes import ladder_steps, latency_lanes, run_steps, step_lanes
from quant.report.methods import methods
from quant.report.mixing import mixing_sentence, step_rows
from quant.report.picture import draw
from quant.report.plan_picture import MOST_PARTS, View, draw_plan, view_of
from quant.report.rendering import environment
from quant.report.rows import candidate_rows
from quant.report.sensitivity import effect_tables
from quant.report.sentence import needed
from quant.report.speed import choice_sentences, fastest_sentence
from quant.report.training import epoch_head, epoch_rows, training_sentence
from quant.report.transforms import transform_rows
from quant.report.words import count, drop, fixed, how_sure, in_unit, limit, looked_at, lower, one_line, plain, upper

if TYPE_CHECKING:
    from jinja2 import Template

_FINDINGS = {"agrees": "yes", "differs": "✗ no", "emulated": "emulated", "not found": "not found"}
_ORDER: dict[Finding, int] = {"differs": 0, "not found": 1, "emulated": 2, "agrees": 3}
_FORMATS_LEFT = frozenset({"fp32", "float32"})
_SECTIONS = {
    "candidates": "Candidates",
    "pareto": "Pareto",
    "plan": "Plan",
    "sensitivity": "Sensitivity",
    "calibration": "Calibration health",
    "ladder": "Ladder",
    "audit": "Engine audit",
    "latency": "Latency",
    "provenance": "Provenance",
}
"""Part -> its heading, in the order of the story."""


def html_page(report: Report, *, ladder: Ladder | None = None) -> str:
    """The page of `report`, whole.

    Args:
        report: The report.
        ladder: A ladder that was climbed for the run; it joins what the report says of its engines.
    """
    ranges = report.calibration.ranges if report.calibration else ()
    plan = draw_plan(report)
    return _template().render(
        report=report,
        contents=[(key, name) for key, name in _SECTIONS.items() if _has(report, key)],
        rows=candidate_rows(report),
        wide=draw(report),
        narrow=draw(report, width=400, height=400, names=False),
        fastest=fastest_sentence(report),
        choices=choice_sentences(report),
        plan=plan,
        plan_content=Markup(plan.content) if plan else "",  # noqa: S704 - JSON in which nothing ends its element
        too_many_parts=report.graph is not None and len(report.graph.parts) > MOST_PARTS,
        views=_views(report),
        sensitivity=effect_tables(report.timings.mixing),
        ranges=sorted(ranges, key=lambda row: (-row.clipped, row.tensor)),
        health=health_sentences(ranges),
        steps=run_steps(report),
        ladder=ladder,
        methods=methods(report),
    )


def _has(report: Report, part: str) -> bool:
    """Whether there is anything to say in a part; those that say why there is nothing always have."""
    if part == "plan":
        return any(c.plan for c in report.candidates)
    return part != "audit" or any(c.audit or c.unaudited for c in report.candidates)


@cache
def _template() -> Template:
    made = environment()
    made.filters.update(
        exclusions_first=_exclusions_first,
        disagreements_first=_disagreements_first,
        is_excluded=_is_excluded,
        found=_found,
        in_parts=lambda candidate: _in_words(candidate.slices),
    )
    return made.get_template("page.html", globals=_globals())


def _globals() -> dict[str, Any]:
    functions = (agreement_sentences, output_rows, transform_rows, training_sentence, epoch_head, epoch_rows, draw_front, mixing_sentence, step_rows)
    more = (audit_sentences, finding, remarks, step_lanes, ladder_steps, latency_lanes, rung_rows, ladder_verdict)
    named: dict[str, Any] = {function.__name__: function for function in (*functions, *more)}
    return named | {"signs": _FINDINGS, "range_bar": _range_bar, "units": _units, "formats_of": _formats_of}


def _views(report: Report) -> Mapping[int, View]:
    """Number of a candidate -> what it makes of its layers, in the order of its plan."""
    rows = {row.target: row for row in report.timings.mixing}
    return {number: view_of(number, c, [choice.layer for choice in c.plan], rows.get(c.target)) for number, c in enumerate(report.candidates, 1) if c.plan}


def _formats_of(candidate: Candidate) -> str:
    """How many layers are in which format.

    Example:
        >>> two = (LayerChoice(layer=n, op="Conv", format="int8", reason="") for n in "ab")
        >>> _formats_of(Candidate(scheme="s", target="t", status="measured", plan=tuple(two)))
        '2 layers in int8'
    """
    formats = [choice.format for choice in candidate.plan]
    return ", ".join(f"{count(formats.count(f), 'layer')} in {one_line(f)}" for f in dict.fromkeys(formats))


def _is_excluded(choice: LayerChoice, candidate: Candidate) -> bool:
    """Whether the layer is left in higher precision than the others of this candidate."""
    return choice.format in _FORMATS_LEFT or (choice.format == "fp16" and any(c.format not in {"fp16", *_FORMATS_LEFT} for c in candidate.plan))


def _exclusions_first(candidate: Candidate) -> list[tuple[int, LayerChoice]]:
    """(place in the plan, choice) of every layer."""
    return sorted(enumerate(candidate.plan), key=lambda pair: not _is_excluded(pair[1], candidate))


def _disagreements_first(candidate: Candidate) -> list[AuditRow]:
    return sorted(candidate.audit, key=lambda row: _ORDER[finding(candidate, row)])


def _units(report: Report) -> dict[str, str]:
    """Name -> unit of every metric that has one."""
    gates = {gate.metric: gate.unit for candidate in report.candidates for gate in candidate.gates}
    return {**report.baseline.units, **gates}


def _found(candidate: Candidate) -> list[dict[str, str]]:
    """The gates of `candidate` in words."""
    return _in_words(candidate.gates)


def _in_words(gates: Sequence[GateRow]) -> list[dict[str, str]]:
    rows = []
    for gate in gates:
        v = gate.verdict
        rows.append(
            {
                "metric": gate.title,
                "direction": {"higher": "higher is better", "lower": "lower is better", "same": "closer is better"}[gate.direction],
                "baseline": in_unit(v.baseline, gate.unit),
                "value": in_unit(v.value, gate.unit),
                "drop": drop(v.drop, gate.unit, relative=v.relative),
                "lower": lower(v.drop_lower, gate.unit, relative=v.relative),
                "upper": upper(v.drop_upper, gate.unit, relative=v.relative),
                "limit": limit(v, gate.unit),
                "confidence": f"{plain(100 * v.confidence)} %",
                "how": how_sure(v),
                "method": v.method,
                "samples": looked_at(v),
                "verdict": v.decision,
                "note": needed(gate) if v.decision == "inconclusive" else "",
            }
        )
    return rows


def _range_bar(row: RangeRow) -> dict[str, str]:
    """Where the chosen range lies among the values seen, on a line 100 long."""
    start, end = min(row.minimum, row.low), max(row.maximum, row.high)
    extent = end - start or 1.0

    def at(value: float) -> float:
        return 100 * (value - start) / extent

    return {
        "seen": fixed(at(row.minimum), 1),
        "seen_width": fixed(max(at(row.maximum) - at(row.minimum), 0.5), 1),
        "chosen": fixed(at(row.low), 1),
        "chosen_width": fixed(max(at(row.high) - at(row.low), 0.5), 1),
    }
