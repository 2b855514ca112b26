"""The report as one HTML page that needs nothing else: no script, no request, no font."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from quant.core.documents import AuditRow, LayerChoice
from quant.report import words
from quant.report.agreement import agreement_sentences, output_rows
from quant.report.audit import Finding, audit_sentences, finding
from quant.report.document import Candidate, RangeRow, Report
from quant.report.front import draw_front
from quant.report.gate_row import GateRow
from quant.report.mixing import mixing_sentence, most_sensitive, spread, step_rows
from quant.report.picture import draw
from quant.report.rows import ICONS, candidate_rows, latency_of
from quant.report.sentence import needed, title
from quant.report.speed import choice_sentences, fastest_sentence
from quant.report.training import epoch_head, epoch_rows, training_sentence
from quant.report.transforms import transform_rows
from quant.report.words import drop, fixed, how_sure, in_unit, limit, looked_at, lower, plain, upper, visible

if TYPE_CHECKING:
    from jinja2 import Environment

_UNIT = re.compile(r"(?<=\d) (?=%|dB|ms|points?\b)")
_FINDINGS = {"agrees": "yes", "differs": "✗ no", "emulated": "emulated", "not found": "not found"}
_ORDER: dict[Finding, int] = {"differs": 0, "not found": 1, "emulated": 2, "agrees": 3}
_FORMATS_LEFT = frozenset({"fp32", "float32"})


def html_page(report: Report) -> str:
    """The page of `report`, whole."""
    calibration = report.calibration
    template = _environment().get_template("page.html")
    return template.render(
        report=report,
        rows=candidate_rows(report),
        wide=draw(report),
        fastest=fastest_sentence(report),
        choices=choice_sentences(report),
        narrow=draw(report, width=400, height=400, names=False),
        ranges=sorted(calibration.ranges, key=lambda row: (-row.clipped, row.tensor)) if calibration else (),
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 only a report needs it

    made = Environment(
        loader=PackageLoader("quant.report", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    made.filters.update(_filters())
    made.globals.update(icons=ICONS, nothing=words.NOTHING, range_bar=_range_bar, latency_of=latency_of, title=title, units=_units)
    made.globals.update(agreement_sentences=agreement_sentences, output_rows=output_rows, transform_rows=transform_rows)
    made.globals.update(training_sentence=training_sentence, epoch_head=epoch_head, epoch_rows=epoch_rows)
    made.globals.update(draw_front=draw_front, mixing_sentence=mixing_sentence, step_rows=step_rows, most_sensitive=most_sensitive, spread=spread)
    made.globals.update(audit_sentences=audit_sentences, finding=finding, signs=_FINDINGS)
    return made


def _filters() -> dict[str, Callable[..., Any]]:
    names = ("percent", "milliseconds", "seconds", "size", "decibels", "number", "fixed", "plain", "small_share", "in_unit", "count", "listed")
    return {name: getattr(words, name) for name in names} | {
        "r": lambda value: f"{value:.1f}".removesuffix(".0"),
        "exclusions_first": _exclusions_first,
        "disagreements_first": _disagreements_first,
        "is_excluded": _is_excluded,
        "found": _found,
        "in_parts": lambda candidate: _in_words(candidate.slices),
        "glued": lambda text: _UNIT.sub("\N{NO-BREAK SPACE}", text),
    }


def _shown(value: Any) -> Any:
    """What an expression of the template shows; the last step before escaping."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _is_excluded(choice: LayerChoice, candidate: Candidate) -> bool:
    """Whether the layer is left in higher precision than the others of this candidate."""
    return choice.format in _FORMATS_LEFT or (choice.format == "fp16" and any(c.format not in {"fp16", *_FORMATS_LEFT} for c in candidate.plan))


def _exclusions_first(candidate: Candidate) -> list[LayerChoice]:
    return sorted(candidate.plan, key=lambda choice: not _is_excluded(choice, candidate))


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
