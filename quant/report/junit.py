"""The report as JUnit XML, which CI servers show as test results: one case per candidate and gate, and one per audit."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from quant.report.audit import audit_sentences, differing, finding
from quant.report.document import Candidate, Report
from quant.report.gate_row import GateRow
from quant.report.rows import latency_of
from quant.report.sentence import needed
from quant.report.words import count, drop, fixed, in_unit, limit, lower, one_line, upper, visible

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: Report) -> str:
    """The text of `junit.xml`.

    A gate that fails is a failure, one that is inconclusive an error (of type `inconclusive`), a candidate that is not
    available, not applicable or not tried is skipped, and so is an audit that was not to be had. An audit with layers in another format than planned
    fails where the candidate failed for it.
    """
    suites = ET.Element("testsuites", name=clean(report.name))
    suite = ET.SubElement(suites, "testsuite", name=clean(report.name), time=f"{report.timings.seconds:.3f}", timestamp=_timestamp(report.timings.started))
    _properties(suite, {"verdict": report.verdict, "sentence": report.sentence, "results_digest": report.results_digest, **report.environment})
    for candidate in report.candidates:
        _candidate(suite, report, candidate)
    for node in (suites, suite):
        node.set("tests", str(len(list(suite.iter("testcase")))))
        node.set("failures", str(len(list(suite.iter("failure")))))
        node.set("errors", str(len(list(suite.iter("error")))))
        node.set("skipped", str(len(list(suite.iter("skipped")))))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=False).join(('<?xml version="1.0" encoding="UTF-8"?>\n', "\n"))


def _candidate(suite: ET.Element, report: Report, candidate: Candidate) -> None:
    if candidate.status != "measured":
        case = _case(suite, candidate, candidate.status)
        said = clean(f"{candidate.status}: {candidate.reason}")
        if candidate.verdict == "fail":
            ET.SubElement(case, "failure", type=candidate.status.replace(" ", "-"), message=said)
        else:
            ET.SubElement(case, "skipped", message=said)
        return
    for gate in candidate.gates:
        _gate(_case(suite, candidate, f"{one_line(gate.title)} within {limit(gate.verdict, gate.unit)}"), gate)
    if not candidate.gates:
        ET.SubElement(_case(suite, candidate, "gate"), "skipped", message="no metric to judge by")
    if candidate.unaudited:
        ET.SubElement(_case(suite, candidate, "audit"), "skipped", message=clean(" ".join(audit_sentences(candidate))))
    elif candidate.audit:
        _audit(_case(suite, candidate, "audit"), candidate)
    times = latency_of(report, candidate)
    facts = {
        "size_bytes": None if candidate.size_bytes is None else str(candidate.size_bytes),
        "size_ratio": None if candidate.size_ratio is None else fixed(candidate.size_ratio, 4),
        "latency_ratio": None if times is None else fixed(times.ratio, 4),
        "emulated": candidate.emulated,
    }
    _properties(suite[-1], {name: value for name, value in facts.items() if value is not None})


def _gate(case: ET.Element, gate: GateRow) -> None:
    v, unit = gate.verdict, gate.unit
    bounds = f"{lower(v.drop_lower, unit, relative=v.relative)} to {upper(v.drop_upper, unit, relative=v.relative)}"
    values = f"{in_unit(v.baseline, unit)} → {in_unit(v.value, unit)}, drop {drop(v.drop, unit, relative=v.relative)} ({bounds}), allowed {limit(v, unit)}"
    text = clean(f"{values}\n{v.samples} paired samples, {v.method}")
    if v.decision == "fail":
        ET.SubElement(case, "failure", type="fail", message=clean(values)).text = text
    elif v.decision == "inconclusive":
        ET.SubElement(case, "error", type="inconclusive", message=clean(f"{values}; {needed(gate)}")).text = text
    else:
        ET.SubElement(case, "system-out").text = text


def _audit(case: ET.Element, candidate: Candidate) -> None:
    wrong = differing(candidate)
    shown = [r for r in candidate.audit if finding(candidate, r) in {"differs", "not found"}]
    text = "\n".join([*audit_sentences(candidate), *(clean(f"{r.layer}: planned {r.planned}, runs {r.runs} ({r.kernel})") for r in shown)])
    if wrong and candidate.verdict == "fail" and all(g.verdict.decision == "pass" for g in candidate.gates):
        ET.SubElement(case, "failure", type="audit", message=f"{count(wrong, 'layer')} in another format than planned").text = text
    elif any(not row.agrees for row in candidate.audit):
        ET.SubElement(case, "system-out").text = text


def _case(suite: ET.Element, candidate: Candidate, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=clean(f"{candidate.target}.{candidate.scheme}"), name=clean(name), time="0")


def _properties(parent: ET.Element, values: dict[str, str]) -> None:
    if not values:
        return
    properties = ET.Element("properties")
    for name, value in values.items():
        ET.SubElement(properties, "property", name=clean(name), value=clean(value))
    parent.insert(0, properties)


def _timestamp(started: str) -> str:
    """ISO 8601 without an offset, as JUnit's schema has it."""
    return re.sub(r"(\.\d+)?(Z|[+-]\d\d:?\d\d)?$", "", clean(started))


def clean(text: str) -> str:
    """`text` with nothing in it that XML 1.0 cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", visible(text))
