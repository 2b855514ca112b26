"""How a report looks in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from quant.core.shown import Chart, Series, Shown, Table

if TYPE_CHECKING:
    from quant.report.document import Candidate, Report


class ReportFaces(Shown):
    """The faces of `Report`, which is the one class that has them."""

    def as_table(self) -> Table:
        """Candidate by candidate, what was found."""
        report = cast("Report", self)
        columns = ("candidate", "verdict", "value", "drop", "at most", "allowed", "time / FP32", "size / FP32", "cosine", "why")
        rows = [
            (title(c), c.word, c.value, c.drop, c.drop_upper, _allowed(c), c.latency_ratio, c.size_ratio, _cosine(c), c.reason or None)
            for c in report.candidates
        ]
        base = report.baseline
        facts = {f"FP32 {base.metric}": base.value} if base.metric is not None else {}
        return Table(f"{report.name}: {report.sentence}", columns, rows, {**facts, "samples": base.samples})

    def as_chart(self) -> Chart:
        """How much worse than FP32 each candidate is, over its time; over its size where nothing was timed."""
        report = cast("Report", self)
        judged = [c for c in report.candidates if c.drop is not None]
        timed = any(c.latency_ratio is not None for c in judged)
        across = "time / FP32" if timed else "size / FP32"
        series = []
        for word in dict.fromkeys(c.word for c in judged):
            mine = [(x, c) for c in judged if c.word == word and (x := c.latency_ratio if timed else c.size_ratio) is not None]
            drops = [c.drop or 0.0 for _, c in mine]
            above = [max((c.drop_upper if c.drop_upper is not None else drop) - drop, 0.0) for drop, (_, c) in zip(drops, mine, strict=True)]
            series.append(Series(word, [x for x, _ in mine], drops, [0.0] * len(mine), above, [title(c) for _, c in mine]))
        limits = (
            {"allowed": allowed} if len(allowed_all := {_allowed(c) for c in judged if c.gates}) == 1 and (allowed := allowed_all.pop()) is not None else {}
        )
        return Chart(f"{report.name}: {report.verdict}", across, "drop of the metric", series, limits=limits)


def title(candidate: Candidate) -> str:
    """`scheme on target`."""
    return f"{candidate.scheme} on {candidate.target}"


def _allowed(candidate: Candidate) -> float | None:
    return candidate.gates[0].verdict.limit if candidate.gates else None


def _cosine(candidate: Candidate) -> float | None:
    return candidate.fidelity.cosine_mean if candidate.fidelity is not None else None
