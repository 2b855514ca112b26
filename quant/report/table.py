"""The candidates as a table for a terminal, coloured or plain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from quant.report.document import Report
from quant.report.rows import Row, candidate_rows
from quant.report.words import NOTHING, in_unit, listed, one_line

_COLOURS = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}
_HEAD = ("#", "candidate", "verdict", "metric", "drop", "upper bound", "allowed", "time", "size", "cosine", "SQNR")
_NUMBERS_FROM = 3
_CANDIDATE_MOST = 28
_DROPPED = ("cosine", "size", "metric", "time", "drop")
"""Columns that a narrow terminal does without, the first of them first; the verdict and the bound that decides it stay."""
_SHORTER = ((" points", " pt"), (" % of FP32", " % rel"))


@dataclass(frozen=True)
class CandidatesTable:
    """The candidates as a table that has as many columns as the terminal has room for; time and size are over FP32's.

    Args:
        report: The report.
    """

    report: Report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table in `options.max_width` columns."""
        columns = _columns(self.report)
        for name in _DROPPED:
            if _width(columns) <= options.max_width:
                break
            del columns[name]
        yield _drawn(self.report, columns)


def candidates_table(report: Report) -> CandidatesTable:
    """The candidates of `report`, to be printed by rich on a console of any width."""
    return CandidatesTable(report)


def _columns(report: Report) -> dict[str, list[Text]]:
    """Head -> the column's cells, from left to right."""
    rows = candidate_rows(report)
    several = len({c.target for c in report.candidates}) > 1
    return {
        "candidate": [Text(row.title if several else row.scheme) for row in rows],
        "verdict": [Text(f"{row.icon} {row.verdict}", style=_COLOURS.get(row.verdict, "dim")) for row in rows],
        "metric": [_short(row.value) for row in rows],
        "drop": [_short(row.drop) for row in rows],
        "at most": [_short(row.bound) for row in rows],
        "time": [_short(row.time) for row in rows],
        "size": [_short(row.size_ratio) for row in rows],
        "cosine": [_short(row.cosine) for row in rows],
    }


def _short(cell: str) -> Text:
    for long, short in _SHORTER:
        cell = cell.replace(long, short)
    return Text(cell)


def _width(columns: Mapping[str, list[Text]]) -> int:
    """Width of the whole table when nothing in it is folded but a long name: a cell's padding, a divider, and an edge on either side."""
    return sum(_widest(name, cells) + 2 for name, cells in columns.items()) + 1


def _widest(name: str, cells: list[Text]) -> int:
    found = max([len(name), *(cell.cell_len for cell in cells)])
    return min(found, _CANDIDATE_MOST) if name == "candidate" else found


def _drawn(report: Report, columns: Mapping[str, list[Text]]) -> Table:
    table = Table(caption=_caption(report, columns), caption_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name, cells in columns.items():
        if name == "candidate":
            fits = all(cell.cell_len <= _CANDIDATE_MOST for cell in cells)
            table.add_column(name, min_width=_widest(name, cells), max_width=_CANDIDATE_MOST, overflow="fold", no_wrap=fits)
        else:
            table.add_column(name, justify="left" if name == "verdict" else "right", overflow="fold", no_wrap=True)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def _caption(report: Report, columns: Collection[str]) -> str:
    """What the columns are measured against: FP32's own value, the gate's limit, and what 1 means."""
    parts = []
    first = next((row for row in candidate_rows(report) if row.metric != NOTHING), None)
    base = report.baseline
    if first is not None and base.value is not None and base.metric is not None:
        gate = next(g for c in report.candidates for g in c.gates)
        parts.append(f"FP32 {first.metric} {in_unit(base.value, gate.unit)}, allowed drop {first.allowed}")
    targets = {one_line(c.target) for c in report.candidates}
    if len(targets) == 1:
        parts.append(f"on {targets.pop()}")
    if ratios := [name for name in ("time", "size") if name in columns]:
        parts.append(f"{listed(ratios)}: FP32 = 1")
    return "; ".join(parts)


def candidate_notes(report: Report) -> tuple[str, ...]:
    """What must be said of single candidates below the table: why not measured, emulated, samples needed."""
    return tuple(f"{row.title}: {note}" for row in candidate_rows(report) for note in row.notes)


def candidates_text(report: Report) -> str:
    """The candidates of `report` as plain text: fixed columns, two spaces between them, notes below their line."""
    rows = candidate_rows(report)
    lines = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
    done = []
    for place, line in enumerate(lines):
        cells = (cell.rjust(width) if i >= _NUMBERS_FROM else cell.ljust(width) for i, (cell, width) in enumerate(zip(line, widths, strict=True)))
        done.append("  ".join(cells).rstrip())
        done += [f"   {note}" for note in rows[place - 1].notes] if place else []
    return "\n".join(done) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    metric = row.value if row.metric == row.value else f"{row.metric} {row.value}"
    return (str(row.number), row.title, row.verdict, metric, row.drop, row.bound, row.allowed, row.time, row.size_ratio, row.cosine, row.sqnr)
