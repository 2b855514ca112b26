"""The candidates as a table for a terminal, coloured or plain."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from quant.report.document import Report
from quant.report.rows import Row, candidate_rows

_COLOURS = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}
_HEAD = ("#", "candidate", "verdict", "metric", "drop", "upper bound", "allowed", "time", "size", "cosine", "SQNR")
_NUMBERS_FROM = 3


def candidates_table(report: Report) -> Table:
    """The candidates of `report`; time and size are over FP32's."""
    table = Table(title=None, caption="time and size: FP32 = 1", caption_justify="left", pad_edge=False)
    for place, name in enumerate(_HEAD):
        table.add_column(name, justify="right" if place >= _NUMBERS_FROM else "left", overflow="fold")
    for row in candidate_rows(report):
        cells = [Text(cell) for cell in _cells(row)]
        cells[2] = Text(f"{row.icon} {row.verdict}", style=_COLOURS.get(row.verdict, "dim"))
        for note in row.notes:
            cells[2].append(f"\n{note}", style="dim")
        table.add_row(*cells)
    return table


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
