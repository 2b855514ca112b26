"""Two runs side by side."""

import io

import html5lib
import pytest
from rich.console import Console

from quant.report.compare import compare
from quant.report.compare_page import compare_page
from quant.report.compare_text import comparison_table, comparison_text


def test_a_run_is_the_same_as_itself_whatever_its_times(make):
    old = make.reports["mixed"]()
    new = old.model_copy(update={"timings": old.timings.model_copy(update={"seconds": 1.0})})
    found = compare(old, new)
    assert found.same_results
    assert found.same_model
    assert found.same_data
    assert not (found.ranges)
    assert not (found.environment)
    assert not (found.recipe)
    assert not (found.roles)
    assert all(change.presence == "both" and not change.formats and not change.files_differ for change in found.candidates)
    assert "the same, byte for byte" in comparison_text(found)


def test_candidates_are_paired_by_scheme_and_target(make):
    old = make.report(make.candidate("int8"), make.candidate("int8-dynamic"))
    worse = make.candidate("int8", make.gate("fail", **make.failing), latency_ratio=0.4, size_bytes=1000, files={"model.onnx": "other"})
    new = make.report(worse, make.absent("int8", "tensorrt", "not available", "no GPU"))
    found = {(c.scheme, c.target): c for c in compare(old, new).candidates}
    assert [c.presence for c in found.values()] == ["both", "removed", "added"]
    changed = found["int8", "onnxruntime"]
    assert changed.verdict == ("pass", "fail")
    assert changed.value == (0.798, 0.76)
    assert changed.drop == (0.002, 0.04)
    assert changed.latency_ratio == (0.53, 0.4)
    assert changed.size_bytes == (23_900_000, 1000)
    assert changed.files_differ
    assert found["int8", "tensorrt"].verdict == (None, "not available")


def test_formats_that_changed_are_told_layer_by_layer(make):
    plan = (make.plan[0].model_copy(update={"format": "fp32"}), make.plan[1], make.plan[2].model_copy(update={"layer": "new"}))
    (change,) = compare(make.report(make.candidate()), make.report(make.candidate(plan=plan))).candidates
    assert [(f.layer, f.old, f.new) for f in change.formats] == [
        ("encoder.layer.0.attention.query", "int8", "fp32"),
        ("classifier", "int8", None),
        ("new", None, "int8"),
    ]


@pytest.mark.parametrize(("high", "told"), [(6.5, False), (7.0, False), (7.2, True)])
def test_ranges_that_moved_by_more_than_a_share_of_their_width_are_told(make, high, told):
    old = make.report(make.candidate())
    rows = old.calibration.ranges
    moved = old.calibration.model_copy(update={"ranges": (rows[0], rows[1].model_copy(update={"high": high}))})
    found = compare(old, old.model_copy(update={"calibration": moved})).ranges
    assert [(r.tensor, r.old, r.new) for r in found] == ([("dense/output", (-6.0, 6.5), (-6.0, high))] if told else [])
    if told:
        assert found[0].change == pytest.approx(0.7 / 12.5)


def test_ranges_that_only_one_run_has_and_ranges_without_extent_are_told(make):
    old = make.report(make.candidate())
    flat = old.calibration.ranges[0].model_copy(update={"low": 0.0, "high": 0.0})
    before = old.model_copy(update={"calibration": old.calibration.model_copy(update={"ranges": (flat,)})})
    found = {r.tensor: r.change for r in compare(before, old).ranges}
    assert found == {"input": 3 / 4, "dense/output": None}
    assert {r.tensor for r in compare(old, old.model_copy(update={"calibration": None})).ranges} == {"input", "dense/output"}


def test_changes_of_model_data_environment_and_recipe_are_told(make):
    old = make.report(make.candidate())
    new = old.model_copy(
        update={
            "baseline": old.baseline.model_copy(update={"model_sha256": "f" * 64, "value": 0.81}),
            "data": old.data.model_copy(update={"samples_sha256": "e" * 64, "roles": {"calibration": 512, "evaluation": 2000}}),
            "environment": {**old.environment, "onnxruntime": "1.33.0"},
            "recipe": old.recipe.replace("[int8]", "[int8, fp16]"),
        }
    )
    found = compare(old, new)
    assert (found.same_results, found.same_model, found.same_data) == (False, False, False)
    assert found.roles == {"calibration": (256, 512)}
    assert found.environment == {"onnxruntime": ("1.32.0", "1.33.0")}
    text = comparison_text(found)
    for line in (
        "model: differs",
        "data: differs",
        "baseline: 80.00 % → 81.00 %",
        "  onnxruntime: 1.32.0 → 1.33.0",
        "  -schemes: [int8]",
        "  +schemes: [int8, fp16]",
    ):
        assert line in text.splitlines()


def test_a_report_that_does_not_know_its_samples_leaves_the_data_open(make):
    old = make.report(make.candidate())
    assert compare(old, old.model_copy(update={"data": old.data.model_copy(update={"samples_sha256": ""})})).same_data is None


def test_text_and_table_show_every_candidate_and_no_codes(any_report, make):
    found = compare(make.reports["mixed"](), any_report)
    console = Console(file=io.StringIO(), width=200)
    console.print(comparison_table(found))
    assert comparison_table(found).row_count == len(found.candidates)
    assert "\x1b" not in comparison_text(found)
    assert compare(make.reports["mixed"](), any_report).digest == found.digest


def test_the_page_of_two_runs_is_self_contained_and_leads_to_how_numbers_were_got(make):
    old, new = make.reports["planned"](), make.reports["evil"]()
    page = compare_page(old, new)
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    ids = [node.attrib["id"] for node in tree.iter() if "id" in node.attrib]
    assert len(ids) == len(set(ids))
    assert {node.attrib["href"][1:] for node in tree.iter("a")} <= set(ids)
    assert "<img" not in page
    assert page == compare_page(old, new)


def latency(make, ratio):
    """Times of `int8` at `ratio` of FP32's, five percent to either side left open."""
    old = make.report(make.candidate())
    row = next(row for row in old.timings.latency if row.scheme == "int8")
    changed = row.model_copy(update={"ratio": ratio, "ratio_low": 0.95 * ratio, "ratio_high": 1.05 * ratio})
    return old.model_copy(update={"timings": old.timings.model_copy(update={"latency": (changed,)})})


def aspects(old, new):
    return [r.aspect for r in compare(old, new).regressions]


def test_a_candidate_that_is_gone_or_whose_verdict_is_worse_is_a_regression_and_a_new_one_is_none(make):
    both, one = make.report(make.candidate("int8"), make.candidate("int8-dynamic")), make.report(make.candidate("int8"))
    assert aspects(both, one) == ["candidates"]
    assert aspects(one, both) == aspects(both, both) == []
    failed = make.report(make.candidate("int8", make.gate("fail", **make.failing)))
    (verdict, accuracy) = compare(one, failed).regressions
    assert (verdict.aspect, verdict.candidate, verdict.what) == ("verdict", "int8 on onnxruntime", "pass → fail")
    assert accuracy.aspect == "accuracy"
    assert "grew from 0.20 points to 4.00 points, beyond the upper bound of" in accuracy.what
    assert aspects(failed, one) == []
    missing = make.report(make.absent("int8", "onnxruntime", "not available", "no engine"))
    assert aspects(one, missing) == ["verdict"]


@pytest.mark.parametrize(("ratio", "told"), [(0.50, []), (0.54, []), (0.56, ["time"])])
def test_a_time_is_worse_where_the_intervals_do_not_meet(make, ratio, told):
    """0.5 is known to 0.525; 0.54 to 0.513, 0.56 to 0.532."""
    assert aspects(latency(make, 0.5), latency(make, ratio)) == told
    assert aspects(latency(make, ratio), latency(make, 0.5)) == []


@pytest.mark.parametrize(("size", "told"), [(1009, []), (1011, ["size"])])
def test_a_size_is_worse_by_more_than_a_percent(make, size, told):
    assert aspects(make.report(make.candidate(size_bytes=1000)), make.report(make.candidate(size_bytes=size))) == told


def test_a_layer_in_more_bits_is_a_regression_that_is_named(make):
    wider = (make.plan[0].model_copy(update={"format": "fp32"}), *make.plan[1:])
    old, new = (make.report(make.candidate(plan=plan, audit=())) for plan in (make.plan, wider))
    (found,) = compare(old, new).regressions
    assert (found.aspect, found.what) == ("formats", "1 layer in more bits than before: encoder.layer.0.attention.query int8 → fp32")
    assert aspects(new, old) == []
    assert "worse than before" in comparison_text(compare(old, new))
    assert "worse than before" not in comparison_text(compare(new, old))
    assert "encoder.layer.0.attention.query int8 → fp32" in compare_page(old, new)
