"""The report for CI servers."""

from xml.etree import ElementTree as ET

from quant.report.junit import junit_xml


def suite(report):
    root = ET.fromstring(junit_xml(report).encode())
    assert root.tag == "testsuites"
    return root.find("testsuite")


def outcome(case):
    return next((child.tag for child in case if child.tag in {"failure", "error", "skipped"}), "ok")


def test_the_xml_of_every_report_parses_and_counts_its_cases(any_report):
    found = suite(any_report)
    cases = found.findall("testcase")
    assert int(found.get("tests")) == len(cases)
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(found.get(name)) == sum(outcome(case) == kind for case in cases)


def test_each_candidate_and_gate_is_one_case(make):
    cases = suite(make.reports["mixed"]()).findall("testcase")
    found = {(case.get("classname"), case.get("name")): outcome(case) for case in cases}
    assert found == {
        ("onnxruntime.int8", "accuracy within 1 point"): "ok",
        ("onnxruntime.int8", "audit"): "ok",
        ("onnxruntime.int8-percentile", "accuracy within 1 point"): "error",
        ("onnxruntime.int8-percentile", "audit"): "ok",
        ("onnxruntime.int8-dynamic", "accuracy within 1 point"): "failure",
        ("onnxruntime.int8-dynamic", "audit"): "ok",
        ("onnxruntime.fp16", "accuracy within 1 point"): "ok",
        ("onnxruntime.fp16", "audit"): "ok",
        ("tensorrt.int8", "not available"): "skipped",
        ("onnxruntime.int4", "not applicable"): "skipped",
    }


def test_an_error_says_how_many_samples_are_needed_and_a_skip_says_why(make):
    found = suite(make.reports["mixed"]())
    error = found.find(".//error")
    assert error.get("type") == "inconclusive"
    assert "about 1,200 more samples needed" in error.get("message")
    assert [s.get("message") for s in found.iter("skipped")] == [
        "not available: no NVIDIA GPU on this machine",
        "not applicable: no layer has weights that it can pack",
    ]


def test_an_audit_fails_where_the_candidate_failed_for_it_alone(make):
    silent = suite(make.report(make.candidate(audit=make.audit, verdict="fail")))
    assert [outcome(case) for case in silent.findall("testcase")] == ["ok", "failure"]
    assert "classifier: planned int8, runs fp32 (FusedGemm)" in silent.find(".//failure").text
    accepted = suite(make.report(make.candidate(audit=make.audit)))
    assert [outcome(case) for case in accepted.findall("testcase")] == ["ok", "ok"]


def test_names_survive_without_what_xml_cannot_hold(make):
    found = suite(make.reports["evil"]())
    assert found.get("name") == make.evil_name
    assert "a|b`c`\n*d* \\x00\\x1b[31m\\u202e</script>]]>&amp;\\ufffe" in {case.get("classname").partition(".")[2] for case in found.iter("testcase")}


def test_properties_hold_the_sentence_and_the_digest(make):
    report = make.reports["pass"]()
    properties = {p.get("name"): p.get("value") for p in suite(report).find("properties")}
    assert properties["sentence"] == report.sentence
    assert properties["results_digest"] == report.results_digest
    assert suite(report).get("timestamp") == "2026-03-01T12:00:00"
