"""The report says what is found now: every result in it, and the pages made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from quant.core.documents import Audit, Document
from quant.engine.bind import BASELINE
from quant.engine.machine import TOOLKIT, environment
from quant.errors import QuantError
from quant.report.document import Candidate, Report
from quant.report.write import report_texts
from quant.validation.check import CHECKS, OfCandidate, OfRun
from quant.validation.findings import Checked, Finding, judged, skipped
from quant.validation.subject import Subject

_REPORT = "report.json"


@CHECKS.add
class ReportPages(OfRun):
    """The report's digest is that of its content, and its pages are made of it."""

    kind: ClassVar[str] = "report-pages"
    title: ClassVar[str] = "the report's pages are those of its results"
    order: ClassVar[int] = 25

    def look(self, subject: Subject) -> Checked:
        """Make the pages again, and compare."""
        folder = subject.delivery.folder
        if folder is None:
            return skipped("a single artifact comes without a report")
        report = subject.delivery.report
        found = []
        if report.with_digest().results_digest != report.results_digest:
            found.append(_file(_REPORT, f"results_digest {report.results_digest[:12]}… is not that of the results"))
        made_by, now = (made.get(TOOLKIT) for made in (report.environment, environment()))
        if made_by != now:  # another version may draw other pages of the same results
            return judged(found, f"made by another version of the toolkit ({made_by or 'unknown'}; this is {now}): its pages are held to the manifest alone")
        for name, text in report_texts(report).items():
            place = folder / name
            if not place.is_file() or place.read_text(encoding="utf-8", errors="replace") != text:
                found.append(_file(name, "is not what report.json says"))
        return judged(found, "made of report.json as it is")


@CHECKS.add
class ReportResults(OfCandidate):
    """What the report says of the candidate is what is found now."""

    kind: ClassVar[str] = "report"
    title: ClassVar[str] = "the report says what is found now"
    order: ClassVar[int] = 130

    def look(self, subject: Subject) -> Checked:
        """Compare files, plan, audit, metrics and verdicts."""
        folder = subject.delivery.folder
        if folder is None:
            return skipped("a single artifact comes without a report")
        if subject.fault:
            return skipped("a fresh process cannot run what it speaks of")
        report = subject.delivery.report
        if subject.scheme == BASELINE:
            return skipped("FP32 is no candidate, of which a report has results")
        row = next((c for c in report.candidates if (c.scheme, c.target) == (subject.scheme, subject.target)), None)
        if row is None:
            return judged([_file(_REPORT, f"says nothing of {subject.name}")], "")
        try:
            told = _told(subject, report, row)
        except QuantError as error:
            return judged([_file(_REPORT, f"its results could not be had again: {error.what}")], "")
        found = [_file(_REPORT, f"{subject.name}: {_difference(what, was, now)}") for what, was, now in told if was != now]
        file = f"plans/{subject.target}/{subject.scheme}.audit.json"
        if not subject.delivery.elsewhere and (folder / file).is_file() and Audit.load(folder / file) != subject.audit:
            found.append(_file(file, "is not what the engine shows now"))
        return judged(found, f"{len(told)} results are the same")


def _told(subject: Subject, report: Report, row: Candidate) -> list[tuple[str, Any, Any]]:
    """(what, what the report says of it, what is found now)."""
    made = subject.expected
    assert made is not None
    told: list[tuple[str, Any, Any]] = [
        ("files", dict(row.files), dict(made.artifact.files)),
        ("size_bytes", row.size_bytes, made.artifact.size_bytes),
        ("plan", row.plan, made.plan.layers if made.plan else ()),
    ]
    decisions = {number: verdict.decision for number, verdict in subject.verdicts.items()}
    told.append(("the decisions of its gates", [gate.verdict.decision for gate in row.gates], list(decisions.values())))
    told.append(("the limits of its gates", [gate.verdict.limit for gate in row.gates], [v.limit for v in subject.verdicts.values()]))
    if subject.delivery.elsewhere:
        return told  # other libraries, another processor: the last digits of a metric may differ
    told += [(f"gate {n}", row.gates[n].verdict if n < len(row.gates) else None, verdict) for n, verdict in subject.verdicts.items()]
    told.append(("audit", row.audit, subject.audit.rows))
    found = {name: float(m.value(subject.measured.predictions.records[name])) for name, m in subject.workshop.bound.metrics.items()}
    told.append(("metrics", dict(row.metrics), found))
    base = {name: float(m.value(subject.delivery.baseline.predictions.records[name])) for name, m in subject.workshop.bound.metrics.items()}
    told.append(("FP32's metrics", dict(report.baseline.metrics), base))
    if not row.reason:
        told.append(("verdict", row.verdict, _worst(list(decisions.values()))))
    return told


def _difference(what: str, was: Any, now: Any) -> str:
    """The first thing within that differs, in a line: documents and mappings by their keys, rows by their number."""
    one, other = (value.model_dump(mode="json") if isinstance(value, Document) else value for value in (was, now))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        key = next(key for key in [*one, *other] if one.get(key) != other.get(key))
        return _difference(f"{what}: {key}", one.get(key), other.get(key))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other) and not all(map(_is_plain, [*one, *other])):
        return _difference(what, *next(pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]))
    return f"{what} is {one}, now {other}"


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _worst(decisions: list[Any]) -> Any:
    from quant.engine.summary import worst  # noqa: PLC0415

    return worst(decisions) if decisions else None


def _file(name: str, what: str) -> Finding:
    return Finding(kind="file", where=name, what=what, file=name)
