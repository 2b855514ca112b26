"""Runs found in a folder: what is said of each, and what of those that cannot be read."""

import json
import os

import pytest

from quant.errors import RunError
from quant.report.serving import index
from quant.report.serving.index import RunIndex, Shelf
from quant.report.write import write_report


def test_every_run_below_the_folder_is_found_with_its_numbers(many):
    found = Shelf(many).index()
    by_run = {entry.run: entry for entry in found.runs}
    assert {"day-1", "day-2", "day-3", "day-4", "deep/er/none"} <= set(by_run)
    assert found.total == len(found.runs) == 10
    first = by_run["day-1"]
    assert (first.recipe, first.started, first.verdict, first.problem) == ("sentiment", "2026-03-01T12:00:00Z", "pass", "")
    int8, dynamic = first.candidates
    assert (int8.scheme, int8.target, int8.metric, int8.value, int8.baseline, int8.time, int8.size) == (
        "int8",
        "onnxruntime",
        "accuracy",
        0.798,
        0.8,
        0.51,
        0.262,
    )
    assert (int8.value_text, int8.baseline_text, int8.drop_text, int8.bound_text, int8.time_text) == (
        "79.80 %",
        "80.00 %",
        "0.20 points",
        "0.60 points",
        "0.51",
    )
    assert (dynamic.scheme, dynamic.target) == ("int8-dynamic", "openvino")
    assert by_run["deep/er/none"].candidates == ()


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ("broken", "not a report"),
        ("newer", "a report of version 2; this toolkit reads version 1"),
        ("nan", "not a report"),
        ("nested", "not a report"),
    ],
)
def test_what_cannot_be_read_is_listed_with_the_reason(many, run, reason):
    entry = next(entry for entry in Shelf(many).index().runs if entry.run == run)
    assert (entry.problem, entry.verdict, entry.candidates) == (reason, None, ())


def test_any_report_can_be_listed_and_the_index_read_back(any_report, tmp_path):
    write_report(any_report, tmp_path / "one")
    found = Shelf(tmp_path).index()
    assert [len(entry.candidates) for entry in found.runs] == [len(any_report.candidates)]
    assert RunIndex.model_validate_json(found.to_json()) == found


def test_a_report_is_read_again_only_when_it_has_changed(many, make, monkeypatch):
    read = []
    load = index.load_report
    monkeypatch.setattr(index, "load_report", lambda path: (read.append(path.parent.name), load(path))[1])
    shelf = Shelf(many)
    shelf.index()
    assert len(read) == 10
    read.clear()
    shelf.index()
    assert read == []
    write_report(make.reports["fail"](), many / "day-1")
    (many / "day-2" / "report.json").unlink()
    write_report(make.reports["pass"](), many / "day-9")
    found = shelf.index()
    assert read == ["day-1", "day-9"]
    assert {entry.run: entry.verdict for entry in found.runs}["day-1"] == "fail"
    assert "day-2" not in {entry.run for entry in found.runs}


def test_only_the_span_that_is_asked_for_is_read(many, monkeypatch):
    read = []
    load = index.load_report
    monkeypatch.setattr(index, "load_report", lambda path: (read.append(path), load(path))[1])
    shelf = Shelf(many)
    part = shelf.index(start=2, most=3)
    assert (part.total, part.start, len(part.runs), len(read)) == (10, 2, 3, 3)
    assert shelf.index(start=10, most=3).runs == ()


def test_pages_are_found_by_key_and_name_alone(many):
    shelf = Shelf(many)
    entry = next(entry for entry in shelf.index().runs if entry.run == "day-1")
    assert shelf.page(entry.key, "report.html") == many / "day-1" / "report.html"
    for key, name in ((entry.key, "junit.xml"), (entry.key, "../day-2/report.html"), ("0" * 20, "report.html"), ("..", "report.html"), ("", "report.json")):
        assert shelf.page(key, name) is None
    assert Shelf(many).page(entry.key, "report.json") == many / "day-1" / "report.json", "a link that was kept works before the index is asked for"


def test_links_lead_nowhere(many, tmp_path):
    secret = tmp_path / "secret.html"
    secret.write_text("secret", encoding="utf-8")
    (many / "day-1" / "report.html").unlink()
    (many / "day-1" / "report.html").symlink_to(secret)
    (many / "linked").mkdir()
    (many / "linked" / "report.json").symlink_to(many / "day-2" / "report.json")
    (many / "folder").symlink_to(tmp_path)
    shelf = Shelf(many)
    by_run = {entry.run: entry for entry in shelf.index().runs}
    assert by_run["day-1"].pages == ("report.json", "report.md")
    assert shelf.page(by_run["day-1"].key, "report.html") is None
    assert by_run["linked"].problem == "its report is a link, which is not followed"
    assert shelf.page(by_run["linked"].key, "report.json") is None
    assert not [run for run in by_run if run.startswith("folder")]


def test_names_that_are_no_text_are_spelled(make, tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(folder)  # noqa: PTH102 - bytes that are no UTF-8
    write_report(make.reports["pass"](), tmp_path / os.path.basename(folder))  # noqa: PTH119
    found = Shelf(tmp_path).index()
    assert [entry.run for entry in found.runs] == ["caf\\udce9"]
    assert json.loads(found.to_json().encode())["total"] == 1


def test_an_empty_folder_has_an_empty_index(tmp_path):
    found = Shelf(tmp_path).index()
    assert (found.total, found.runs) == (0, ())


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(RunError, match="no such folder"):
        Shelf(tmp_path / "nowhere")
