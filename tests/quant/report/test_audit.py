"""What an audit is said to mean: by nature, by surprise, or not to be seen."""

from xml.etree import ElementTree as ET

import pytest

from quant.core.documents import AuditRow
from quant.report.audit import audit_sentences, differing, finding, not_found
from quant.report.junit import junit_xml
from quant.report.markdown import markdown
from quant.report.page import html_page
from quant.report.rows import candidate_rows

BY_NATURE = "Emulated: its 2 layers run in FP32 here, as expected; it does not count against the verdict."


def row(layer, planned, runs):
    return AuditRow(layer=layer, planned=planned, runs=runs, kernel="Gemm", agrees=planned == runs)


def notes(report):
    return " ".join(note for shown in candidate_rows(report) for note in shown.notes)


@pytest.mark.parametrize("narrow", ["fp16", "bf16", "fp8"])
def test_narrow_floating_point_that_the_engine_emulates_is_no_surprise_anywhere(make, narrow):
    audit = (row("a", narrow, "fp32"), row("b", narrow, "fp32"), row("c", "fp32", "fp32"))
    candidate = make.candidate(narrow, emulated="computed in FP32", latency_ratio=None, audit=audit)
    report = make.report(candidate)
    page, text = html_page(report), markdown(report)
    assert [finding(candidate, r) for r in audit] == ["emulated", "emulated", "agrees"]
    assert audit_sentences(candidate) == (BY_NATURE,)
    for shown in (page, text, junit_xml(report), report.sentence, notes(report)):
        assert "in another format" not in shown
    assert BY_NATURE in page
    assert BY_NATURE in text
    assert 'class="loud"' not in page.partition('id="audit"')[2]
    assert "✗ no" not in page


def test_an_engine_built_ahead_of_time_hides_no_layer_that_fell_back(make):
    audit = (row("a", "fp16", "fp16"), row("b", "fp16", "fp32"))
    candidate = make.candidate("fp16", target="tensorrt-rtx", emulated="no GPU is used here", latency_ratio=None, audit=audit)
    assert audit_sentences(candidate) == ("1 layer of 2 in another format than planned.",)
    assert "1 layer in another format than planned" in notes(make.report(candidate))
    assert "✗ no" in html_page(make.report(candidate))


def test_not_even_where_all_its_layers_fell_back(make):
    audit = (row("a", "fp16", "fp32"), row("b", "fp16", "fp32"))
    candidate = make.candidate(
        "fp16", target="tensorrt-rtx", emulated="no GPU is used here", latency_ratio=None, audit=audit, verdict="fail", reason="2 of 2 layers fell back"
    )
    assert differing(candidate) == 2
    assert "✗ no" in html_page(make.report(candidate))


def test_whole_numbers_are_never_excused_by_emulation(make):
    candidate = make.candidate(emulated="no GPU is used here", latency_ratio=None, audit=make.audit)
    assert differing(candidate) == 1


def test_layers_that_the_graph_does_not_show_are_counted_apart(make):
    audit = (row("a", "int8", "int8"), row("b", "int8", "fp32"), row("c", "int8", "unknown"), row("d", "int8", "unknown"))
    candidate = make.candidate(audit=audit)
    report = make.report(candidate)
    assert (differing(candidate), not_found(candidate)) == (1, 2)
    assert audit_sentences(candidate) == ("1 layer of 4 in another format than planned.", "2 layers not found in the engine's graph.")
    assert notes(report) == "1 layer in another format than planned 2 layers not found in the engine's graph"
    assert html_page(report).count("✗ no") == 1
    assert "2 layers not found in the engine's graph." in markdown(report)


def test_layers_that_are_only_not_found_fail_no_test_of_a_ci_server(make):
    report = make.report(make.candidate(audit=(row("a", "int8", "int8"), row("b", "int8", "unknown"))))
    text = junit_xml(report)
    assert "1 layer not found in the engine's graph." in text
    assert "<failure" not in text
    assert "in another format" not in text


def test_what_was_not_audited_is_said_everywhere_and_nothing_is_claimed(make):
    why = "no engine was built here; build_engine.py audits it"
    candidate = make.candidate(target="tensorrt", emulated="no engine was built here", latency_ratio=None, audit=(), unaudited=why)
    report = make.report(candidate)
    page, text = html_page(report), markdown(report)
    junit = ET.fromstring(junit_xml(report))
    assert audit_sentences(candidate) == (f"Not audited: {why}.",)
    for shown in (page.partition('id="audit"')[2], junit_xml(report)):
        assert f"Not audited: {why}." in shown
    assert "Not audited: no engine was built here; build" in text
    assert f"not audited: {why}" in notes(report)
    assert "int8 on tensorrt (emulated, not audited) keeps" in report.sentence
    assert "as planned" not in page + text + junit_xml(report)
    (case,) = [c for c in junit.iter("testcase") if c.get("name") == "audit"]
    assert case.find("skipped") is not None
    assert report.candidates[0].model_dump()["unaudited"] == why


def test_a_candidate_that_was_audited_says_nothing_of_the_kind(make):
    assert "audited" not in markdown(make.report(make.candidate()))
