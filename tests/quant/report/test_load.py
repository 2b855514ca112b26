"""Reading reports back."""

import pytest

from quant.errors import RunError
from quant.report.load import load_report
from quant.report.write import write_report


def test_what_was_written_is_read_back(any_report, tmp_path):
    write_report(any_report, tmp_path)
    assert load_report(tmp_path) == any_report
    assert load_report(tmp_path / "report.json") == any_report


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "this folder has no report.json"),
        ("{", "not a report"),
        ("[]", "not a report"),
        ("\xff", "not a report"),
        ('{"version": 1, "seconds": 1e999}', "not a report"),
        ('{"version": NaN}', "not a report"),
        ("[" * 100_000, "not a report"),
        ("{}", "not a report"),
        ('{"version": 2}', "a report of version 2; this toolkit reads version 1"),
        ('{"version": 1, "name": "x"}', "not a Report"),
    ],
)
def test_what_is_no_report_is_told_with_its_place(tmp_path, content, message):
    if content is not None:
        (tmp_path / "report.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(RunError, match=message) as error:
        load_report(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(RunError, match="no such run"):
        load_report(tmp_path / "nowhere")


def test_a_file_is_no_folder_without_a_report(tmp_path):
    (tmp_path / "recipe.yaml").write_text("version: 1\n")
    with pytest.raises(RunError, match="is a file, not the folder of a run"):
        load_report(tmp_path / "recipe.yaml")
