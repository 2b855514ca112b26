"""The candidates as a table for a terminal, coloured or plain."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from quant.report.document import Report
from quant.report.rows import Row, candidate_rows
from quant.report.words import NOTHING, in_unit, one_line

_COLOURS = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}
_HEAD = ("#", "candidate", "verdict", "metric", "drop", "upper bound", "allowed", "time", "size", "cosine", "SQNR")
_NUMBERS_FROM = 3
_NARROW = ("candidate", "verdict", "metric", "drop", "at most", "time", "size", "cosine")


def candidates_table(report: Report) -> Table:
    """The candidates of `report`, narrow enough for 80 columns; time and size are over FP32's."""
    table = Table(caption=_caption(report), caption_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in _NARROW:
        is_word = name in {"candidate", "verdict"}
        table.add_column(name, justify="left" if is_word else "right", overflow="fold", no_wrap=name != "candidate")
    for row in candidate_rows(report):
        name = row.scheme if len({c.target for c in report.candidates}) == 1 else row.title
        verdict = Text(f"{row.icon} {row.verdict}", style=_COLOURS.get(row.verdict, "dim"))
        table.add_row(
            Text(name), verdict, *(Text(cell.replace(" points", " pt")) for cell in (row.value, row.drop, row.bound, row.time, row.size_ratio, row.cosine))
        )
    return table


def _caption(report: Report) -> str:
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
    return "; ".join([*parts, "time and size: FP32 = 1"])


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
