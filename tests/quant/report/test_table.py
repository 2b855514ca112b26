"""The candidates in a terminal."""

import io
import re

import pytest
from rich.console import Console

from quant.report.table import candidate_notes, candidates_table, candidates_text


def shown(table, *, colour=False):
    console = Console(file=io.StringIO(), width=200, force_terminal=colour, color_system="standard" if colour else None)
    console.print(table)
    return console.file.getvalue()


def test_plain_text_has_fixed_columns_and_notes_below(make):
    report = make.reports["mixed"]()
    lines = candidates_text(report).splitlines()
    assert lines[0].split("  ")[0] == "#"
    assert lines[1].endswith("0.53  0.26  0.9991  31.2 dB")
    assert lines[3] == "   accuracy: about 1,200 more samples needed"
    columns = [line.index(word) for line, word in ((lines[0], "verdict"), (lines[1], "pass"), (lines[2], "inconclusive"))]
    assert len(set(columns)) == 1
    assert candidates_text(report) == candidates_text(report)


def test_the_table_shows_verdicts_in_colour_and_in_words(make):
    text = shown(candidates_table(make.reports["mixed"]()), colour=True)
    for word, code in (("✓ pass", "1;32"), ("✗ fail", "1;31"), ("? inconclusive", "1;33")):
        assert f"\x1b[{code}m{word}" in text


def test_names_are_no_markup_and_send_no_codes_to_the_terminal(make):
    report = make.report(make.candidate("[bold red]x[/]\x1b[31m"))
    text = shown(candidates_table(report))
    assert "[bold red]x[/]\\x1b[31m" in text.replace("\n", "")
    assert "\x1b" not in candidates_text(report)


def test_every_report_has_a_table(any_report):
    assert len(candidates_text(any_report).splitlines()) > len(any_report.candidates)
    assert sum(f"{c.word} " in line for c in any_report.candidates for line in shown(candidates_table(any_report)).splitlines()) >= len(any_report.candidates)


def test_the_table_fits_80_columns_with_numbers_whole_and_notes_apart(any_report):
    console = Console(file=io.StringIO(), width=80)
    console.print(candidates_table(any_report))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert all(": " in note for note in candidate_notes(any_report))


def printed(report, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(candidates_table(report))
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (100, ["candidate", "verdict", "metric", "drop", "at most", "time", "size", "cosine"]),
        (80, ["candidate", "verdict", "metric", "drop", "at most", "time", "size"]),
        (74, ["candidate", "verdict", "metric", "drop", "at most", "time"]),
        (60, ["candidate", "verdict", "drop", "at most"]),
    ],
)
def test_a_narrow_terminal_drops_columns_and_never_breaks_a_name(make, width, heads):
    report = make.report(*(c for c in make.reports["mixed"]().candidates if c.status == "measured"))
    lines = printed(report, width).splitlines()
    assert re.split(r"\s{2,}", lines[1].strip()) == heads
    assert [line.split()[0] for line in lines[3:7]] == ["int8", "int8-percentile", "int8-dynamic", "fp16"]
    assert max(map(len, lines)) <= width


def test_the_caption_explains_only_the_columns_that_are_shown(make):
    report = make.report(*(c for c in make.reports["mixed"]().candidates if c.status == "measured"))
    assert "time and size: FP32 = 1" in printed(report, 100)
    assert "time: FP32 = 1" in " ".join(printed(report, 74).split())
    assert "FP32 = 1" not in printed(report, 60)


def test_a_name_longer_than_28_letters_folds_and_stays_whole(make):
    name = "a-scheme-with-a-name-of-thirty-six-x"
    lines = printed(make.report(make.candidate(name)), 80).splitlines()
    assert "".join(line.split()[0] for line in lines[3:5]) == name


def test_relative_drops_are_short_in_cells(make):
    relative = make.gate(relative=True, metric="perplexity", unit="perplexity")
    text = printed(make.report(make.candidate("int8", relative)), 80)
    assert "0.20 % rel" in text
    assert "0.60 % rel" in text
    assert "0.20 % of FP32" not in text
