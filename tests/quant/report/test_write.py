"""The files of a report."""

import pytest

from quant.errors import RunError
from quant.report import write
from quant.report.write import write_report


def test_four_files_are_written_and_the_same_report_gives_the_same_bytes(make, tmp_path):
    report = make.reports["mixed"]()
    first, second = (write_report(report, tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == ["report.json", "report.md", "report.html", "junit.xml"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert {path.name for path in (tmp_path / "a").iterdir()} == {path.name for path in first}
    assert first[0].read_text(encoding="utf-8") == report.to_json()


def test_nothing_is_written_when_one_of_them_cannot_be_made(make, tmp_path, monkeypatch):
    def broken(_report):
        raise ZeroDivisionError

    monkeypatch.setattr(write, "junit_xml", broken)
    with pytest.raises(ZeroDivisionError):
        write_report(make.reports["pass"](), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told(make, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write here"):
        write_report(make.reports["pass"](), tmp_path / "file")
