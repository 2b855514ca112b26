"""A comparison of two runs, for a terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from quant.report.compare import CandidateChange, Comparison
from quant.report.words import NOTHING, count, drop, fixed, in_unit, number, one_line, percent, size, visible

_MOST = 20
HEAD = ("candidate", "", "verdict", "metric", "drop", "time", "size", "layers changed")
"""Names of what `change_cells` gives."""


def comparison_table(comparison: Comparison) -> Table:
    """The candidates of both runs, old → new."""
    table = Table(caption="time: FP32 of the same run = 1", caption_justify="left", pad_edge=False)
    for name in HEAD:
        table.add_column(name, overflow="fold")
    for change in comparison.candidates:
        table.add_row(*(Text(cell, style=_style(change) if place == 2 else "") for place, cell in enumerate(change_cells(change))))  # noqa: PLR2004 the verdict
    return table


def comparison_text(comparison: Comparison) -> str:
    """The whole comparison as plain text."""
    lines = _heading(comparison)
    rows = [HEAD, *(change_cells(change) for change in comparison.candidates)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    lines += ["", *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)]
    if comparison.regressions:
        lines += ["", "worse than before", *(f"  {one_line(r.candidate)}: {r.what}" for r in comparison.regressions)]
    for change in comparison.candidates:
        if change.formats:
            lines += ["", f"{change_name(change)}: {count(len(change.formats), 'layer')} in another format"]
            lines += [f"  {one_line(f.layer)}: {pair((f.old, f.new))}" for f in change.formats[:_MOST]]
            lines += _more(len(change.formats), "layer")
    lines += _ranges(comparison)
    if comparison.environment:
        lines += ["", "environment"]
        lines += [f"  {one_line(name)}: {pair(both)}" for name, both in comparison.environment.items()]
    if comparison.recipe:
        lines += ["", "recipe", *(f"  {visible(line)}" for line in comparison.recipe)]
    return "\n".join(lines) + "\n"


def _heading(c: Comparison) -> list[str]:
    same = {True: "the same", False: "differs", None: "not known"}
    lines = [
        f"{one_line(c.names[0])} → {one_line(c.names[1])}",
        f"verdict: {pair(c.verdict)}",
        "results: " + ("the same, byte for byte (times aside)" if c.same_results else "differ"),
        f"model: {same[c.same_model]}",
        f"data: {same[c.same_data]}",
    ]
    lines += [f"  {one_line(role)}: {pair(tuple(None if n is None else count(n, 'sample') for n in both))}" for role, both in c.roles.items()]
    if c.baseline != (None, None):
        unit = next((change.unit for change in c.candidates if change.unit), "")
        lines.append(f"baseline: {pair(tuple(None if v is None else in_unit(v, unit) for v in c.baseline))}")
    return lines


def _ranges(c: Comparison) -> list[str]:
    if not c.ranges:
        return []
    lines = ["", f"{count(len(c.ranges), 'range')} moved by more than {percent(c.range_change, 0)} of the width"]
    for row in c.ranges[:_MOST]:
        ends = pair(tuple(None if r is None else f"[{number(r[0])}, {number(r[1])}]" for r in (row.old, row.new)))
        lines.append(f"  {one_line(row.tensor)}: {ends}" + ("" if row.change is None else f" ({percent(row.change, 1)})"))
    return lines + _more(len(c.ranges), "range")


def _more(found: int, noun: str) -> list[str]:
    return [f"  … and {count(found - _MOST, 'further ' + noun)}"] if found > _MOST else []


def change_name(change: CandidateChange) -> str:
    """`scheme on target`."""
    return f"{one_line(change.scheme)} on {one_line(change.target)}"


def _style(change: CandidateChange) -> str:
    return {"pass": "green", "fail": "red", "inconclusive": "yellow"}.get(change.verdict[1] or "", "dim")


def change_cells(change: CandidateChange) -> tuple[str, ...]:
    """A candidate of either run in words, old → new, in the order of `HEAD`."""
    drops = tuple(None if v is None else drop(v, change.unit, relative=change.relative) for v in change.drop)
    return (
        change_name(change),
        "" if change.presence == "both" else change.presence,
        pair(change.verdict),
        pair(tuple(None if v is None else in_unit(v, change.unit) for v in change.value)),
        pair(drops),
        pair(tuple(None if v is None else fixed(v) for v in change.latency_ratio)),
        pair(tuple(None if v is None else size(v) for v in change.size_bytes)),
        str(len(change.formats)) if change.formats else "files differ" if change.files_differ else NOTHING,
    )


def pair(values: tuple[str | None, ...]) -> str:
    """`old → new`, or one value where both are the same."""
    old, new = (NOTHING if v is None else one_line(v) for v in values)
    return old if old == new else f"{old} → {new}"
