"""Pages of runs that are over."""

import webbrowser

import pytest
from typer.testing import CliRunner

from quant.cli.shared import app
from quant.errors import RunError
from quant.report.ladder import Ladder, Rung
from quant.report.show import show_comparison, show_run, write_ladder
from quant.report.write import write_report

LADDER = Ladder(subject="digits.onnx", first="FP32", inputs="random", output="y", rungs=(Rung(name="FP32"), Rung(name="engine")), agrees=True)


@pytest.fixture
def runs(make, tmp_path):
    for name in ("a", "b"):
        write_report(make.reports["mixed" if name == "a" else "pass"](), tmp_path / name)
    return tmp_path / "a", tmp_path / "b"


def test_the_page_of_a_run_that_is_as_it_was_is_its_own(runs):
    before = {path.name: path.read_bytes() for path in runs[0].iterdir()}
    assert show_run(runs[0]) == runs[0] / "report.html"
    assert show_run(runs[0] / "report.json") == runs[0] / "report.html"
    assert {path.name: path.read_bytes() for path in runs[0].iterdir()} == before


def test_a_page_that_says_something_else_lies_beside_the_folder_which_stays_as_it_was(runs, tmp_path):
    own = (runs[0] / "report.html").read_bytes()
    LADDER.save(tmp_path / "ladder.json")
    place = show_run(runs[0], ladder=tmp_path / "ladder.json")
    assert place == tmp_path / "a.html"
    assert "digits.onnx, rung by rung" in place.read_text(encoding="utf-8")
    (runs[0] / "report.html").write_bytes(b"an older page")
    assert show_run(runs[0]).read_bytes() == own
    assert (runs[0] / "report.html").read_bytes() == b"an older page"


def test_two_runs_lie_beside_the_newer_one_unless_told_otherwise(runs, tmp_path):
    assert show_comparison(*runs) == tmp_path / "a-and-b.html"
    assert show_comparison(*runs, output=tmp_path / "other.html").read_bytes() == (tmp_path / "a-and-b.html").read_bytes()


def test_a_ladder_is_written_as_what_its_name_says(tmp_path):
    for name in ("l.json", "l.html"):
        write_ladder(LADDER, tmp_path / name)
    assert Ladder.load(tmp_path / "l.json") == LADDER
    assert "All compute what the graph means" in (tmp_path / "l.html").read_text(encoding="utf-8")
    with pytest.raises(RunError, match=r"a ladder is written as .json or .html"):
        write_ladder(LADDER, tmp_path / "l.txt")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "b"], "a page is made of one run, not of 2"),
        (["--compare", "a"], "--compare takes two runs, not 1"),
        (["nowhere"], "no such run"),
        (["--compare", "a", "nowhere"], "no such run"),
        (["a", "--output", "report.json"], "a page is written as .html"),
        (["a", "--output", "b"], "Is a directory"),
        (["a", "--ladder", "a/report.json"], "not a Ladder"),
        (["--compare", "a", "b", "--ladder", "l.json"], "a ladder joins the page of one run"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_what_is_wrong(runs, monkeypatch, arguments, said):
    monkeypatch.chdir(runs[0].parent)
    result = CliRunner().invoke(app, ["report", *arguments])
    assert isinstance(result.exception, RunError)
    assert said in str(result.exception)


@pytest.mark.parametrize("found", [True, False])
def test_a_browser_is_asked_to_open_the_page_and_where_there_is_none_that_is_said(runs, monkeypatch, found):
    asked = []
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.append(url) or found)
    result = CliRunner().invoke(app, ["report", str(runs[0]), "--open"])
    assert result.exit_code == 0
    assert asked == [(runs[0] / "report.html").as_uri()]
    assert result.stdout == f"{runs[0] / 'report.html'}\n"
    assert ("no browser was found" in result.stderr) is not found
