"""Two runs side by side, as one HTML page that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from quant.report.compare import Comparison, RangeChange, compare
from quant.report.compare_text import HEAD, change_cells, change_name, pair
from quant.report.document import LatencyRow, Report
from quant.report.methods import Method, methods
from quant.report.rendering import environment
from quant.report.speed import fastest_sentence
from quant.report.words import NOTHING, count, in_unit, milliseconds, number, percent

_SAME = {True: "the same", False: "differs", None: "not known"}
_KEYS = ("", "", "verdict", "metric", "drop", "time", "size", "")


@dataclass(frozen=True)
class _Cell:
    """What stands in a table; `differs` where the runs do, `key` of how it was got."""

    text: str
    differs: bool
    key: str = ""


def compare_page(old: Report, new: Report) -> str:
    """The page of what changed from `old` to `new`.

    Args:
        old: The earlier run.
        new: The later run.
    """
    found = compare(old, new)
    rows = [(change, [_Cell(text, " → " in text, key) for text, key in zip(change_cells(change), _KEYS, strict=True)]) for change in found.candidates]
    return (
        environment()
        .get_template("compare.html")
        .render(
            found=found,
            runs=(("Older", old, fastest_sentence(old)), ("Newer", new, fastest_sentence(new))),
            facts=_facts(found),
            head=HEAD,
            rows=rows,
            changed=[(change_name(change), change.formats) for change in found.candidates if change.formats],
            ranges=[(row.tensor, *_range(row)) for row in found.ranges],
            range_share=percent(found.range_change, 0),
            range_key="range" if any(method.key == "range" for method in methods(new)) else "",
            times=_times(old, new),
            pair=pair,
            methods=methods(new),
            other_methods=_only(methods(old), methods(new)),
        )
    )


def _facts(c: Comparison) -> list[tuple[str, str]]:
    unit = next((change.unit for change in c.candidates if change.unit), "")
    told = [
        ("Verdict", pair(c.verdict)),
        ("Results", "the same, byte for byte (times aside)" if c.same_results else "differ"),
        ("Model", _SAME[c.same_model]),
        ("Data", _SAME[c.same_data]),
    ]
    told += [(f"Samples: {role}", pair(tuple(None if n is None else count(n, "sample") for n in both))) for role, both in c.roles.items()]
    if c.baseline != (None, None):
        told.append(("FP32", pair(tuple(None if v is None else in_unit(v, unit) for v in c.baseline))))
    return told


def _range(row: RangeChange) -> tuple[str, str, str]:
    old, new = (NOTHING if r is None else f"{number(r[0])} to {number(r[1])}" for r in (row.old, row.new))
    return old, new, NOTHING if row.change is None else percent(row.change, 1)


def _times(old: Report, new: Report) -> list[tuple[str, str, str]]:
    """(artifact, median time in the older run, in the newer one); those that are emulated make no claim."""
    before, after = (_medians(report) for report in (old, new))
    return [(name, before.get(name, NOTHING), after.get(name, NOTHING)) for name in {**before, **after}]


def _medians(report: Report) -> dict[str, str]:
    emulated = {(c.scheme, c.target) for c in report.candidates if c.emulated is not None}
    rows: list[LatencyRow] = [row for row in report.timings.latency if (row.scheme, row.target) not in emulated]
    return {f"{row.scheme} on {row.target}": milliseconds(row.p50_ms) for row in rows}


def _only(old: tuple[Method, ...], new: tuple[Method, ...]) -> list[Method]:
    """What the older run got in another way than the newer one."""
    known = set(new)
    return [method for method in old if method not in known]
