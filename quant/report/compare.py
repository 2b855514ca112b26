"""Two runs side by side: what changed, candidate by candidate, layer by layer, range by range."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar

from quant.core.arguments import with_checked_arguments
from quant.core.documents import Decision, Document
from quant.core.shown import Chart, Series, Shown, Table
from quant.report.document import Calibration, Candidate, Report
from quant.report.load import load_report
from quant.report.regressions import Regression, regressions

_T = TypeVar("_T", int, str)


class FormatChange(Document):
    """A layer whose format differs; None where the run's plan does not have the layer."""

    layer: str
    old: str | None
    new: str | None


class RangeChange(Document):
    """A tensor whose range differs.

    Args:
        tensor: Name of the tensor.
        old: Range (low, high) of the old run; None when it has none.
        new: Range of the new run; None when it has none.
        change: The larger move of the two ends, as a share of the old width; None when either is missing.
    """

    tensor: str
    old: tuple[float, float] | None
    new: tuple[float, float] | None
    change: float | None


class CandidateChange(Document):
    """A candidate of either run; every pair is (old, new), None where there is no value.

    Args:
        scheme: The scheme.
        target: The serving engine.
        presence: Whether both runs have it, or only the new one (`added`) or the old one (`removed`).
        verdict: Verdict, or status when it was not measured.
        metric: Name of the first gate's metric.
        unit: Unit of its value.
        relative: Whether the drop is a share of the baseline, in the newest run that has it.
        value: Value of that metric.
        drop: How much worse than the run's own baseline.
        latency_ratio: Median time over FP32's in the same run.
        size_bytes: Size of the artifact.
        formats: Layers whose format differs.
        files_differ: Whether the artifact's files have other digests.
    """

    scheme: str
    target: str
    presence: Literal["both", "added", "removed"]
    verdict: tuple[str | None, str | None]
    metric: str | None
    unit: str
    relative: bool
    value: tuple[float | None, float | None]
    drop: tuple[float | None, float | None]
    latency_ratio: tuple[float | None, float | None]
    size_bytes: tuple[int | None, int | None]
    formats: tuple[FormatChange, ...]
    files_differ: bool


class Comparison(Document, Shown):
    """What changed from one run to another; every pair is (old, new).

    Args:
        names: Names of the recipes.
        verdict: Verdicts of the runs.
        same_results: Whether everything but times is the same, byte for byte.
        same_model: Whether the FP32 graph is the same.
        same_data: Whether the samples are the same; None when a report does not say.
        baseline: Value of the first gate's metric in FP32.
        roles: Role -> number of samples, where it differs; None where a run does not have the role.
        candidates: Every candidate of either run.
        regressions: What got worse, by more than the runs themselves leave open.
        range_change: Share of the width from which on a moved range is told.
        ranges: Ranges that moved so far, the most moved first.
        environment: Name -> value, where it differs.
        recipe: The differences of the resolved recipes, as lines of a unified diff.
    """

    names: tuple[str, str]
    verdict: tuple[Decision, Decision]
    same_results: bool
    same_model: bool
    same_data: bool | None
    baseline: tuple[float | None, float | None]
    roles: dict[str, tuple[int | None, int | None]]
    candidates: tuple[CandidateChange, ...]
    regressions: tuple[Regression, ...] = ()
    range_change: float
    ranges: tuple[RangeChange, ...]
    environment: dict[str, tuple[str | None, str | None]]
    recipe: tuple[str, ...]

    def as_table(self) -> Table:
        """Candidate by candidate, old and new."""
        columns = ("candidate", "in", "verdict", "new verdict", "drop", "new drop", "time", "new time", "bytes", "new bytes", "formats that differ")
        rows = [(f"{c.scheme} on {c.target}", c.presence, *c.verdict, *c.drop, *c.latency_ratio, *c.size_bytes, len(c.formats)) for c in self.candidates]
        facts = {"results": "the same" if self.same_results else "differ", "model": "the same" if self.same_model else "another"}
        facts |= {"data": {True: "the same", False: "others", None: "not told"}[self.same_data], "verdict": " → ".join(self.verdict)}
        return Table(" → ".join(self.names), columns, rows, facts)

    def as_chart(self) -> Chart:
        """The drop of each candidate in both runs."""
        series = []
        for name, at in (("old", 0), ("new", 1)):
            found = [(c.drop[at], f"{c.scheme} on {c.target}") for c in self.candidates]
            told = [(drop, title) for drop, title in found if drop is not None]
            series.append(Series(name, [drop for drop, _ in told], [title for _, title in told]))
        return Chart("How much worse than its own FP32", "drop", "", series, "bars")


@with_checked_arguments
def compare(old: Report | Path | str, new: Report | Path | str, *, range_change: float = 0.05) -> Comparison:
    """What changed from `old` to `new`.

    Args:
        old: The earlier run: its report, or its folder.
        new: The later run.
        range_change: Share of its old width by which an end of a range must move to be told.

    Raises:
        RunError: There is no run, or its report cannot be read.
    """
    old, new = (one if isinstance(one, Report) else load_report(one) for one in (old, new))
    samples = old.data.samples_sha256, new.data.samples_sha256
    before, after = ({(c.scheme, c.target): c for c in report.candidates} for report in (old, new))
    return Comparison(
        names=(old.name, new.name),
        verdict=(old.verdict, new.verdict),
        same_results=old.with_digest().results_digest == new.with_digest().results_digest,
        same_model=old.baseline.model_sha256 == new.baseline.model_sha256,
        same_data=samples[0] == samples[1] if all(samples) else None,
        baseline=(old.baseline.value, new.baseline.value),
        roles=_differing(old.data.roles, new.data.roles),
        candidates=tuple(_candidate(before.get(key), after.get(key)) for key in {**before, **after}),
        regressions=regressions(old, new),
        range_change=range_change,
        ranges=_ranges(old.calibration, new.calibration, range_change),
        environment=_differing(old.environment, new.environment),
        recipe=tuple(difflib.unified_diff(old.recipe.splitlines(), new.recipe.splitlines(), "old", "new", lineterm="", n=2)),
    )


def _differing(old: Mapping[str, _T], new: Mapping[str, _T]) -> dict[str, tuple[_T | None, _T | None]]:
    return {name: (old.get(name), new.get(name)) for name in sorted({*old, *new}) if old.get(name) != new.get(name)}


def _candidate(old: Candidate | None, new: Candidate | None) -> CandidateChange:
    either = new or old
    assert either is not None, "a candidate of neither run"
    gates = [c.gates[0] for c in (old, new) if c is not None and c.gates]
    return CandidateChange(
        scheme=either.scheme,
        target=either.target,
        presence="added" if old is None else "removed" if new is None else "both",
        verdict=(_word(old), _word(new)),
        metric=either.metric,
        unit=gates[-1].unit if gates else "",
        relative=bool(gates and gates[-1].verdict.relative),
        value=(old.value if old else None, new.value if new else None),
        drop=(old.drop if old else None, new.drop if new else None),
        latency_ratio=(old.latency_ratio if old else None, new.latency_ratio if new else None),
        size_bytes=(old.size_bytes if old else None, new.size_bytes if new else None),
        formats=_formats(old, new) if old and new and old.plan and new.plan else (),
        files_differ=bool(old and new and old.files != new.files),
    )


def _word(candidate: Candidate | None) -> str | None:
    return None if candidate is None else candidate.word


def _formats(old: Candidate, new: Candidate) -> tuple[FormatChange, ...]:
    before, after = ({choice.layer: choice.format for choice in c.plan} for c in (old, new))
    return tuple(FormatChange(layer=name, old=a, new=b) for name in {**before, **after} if (a := before.get(name)) != (b := after.get(name)))


def _ranges(old: Calibration | None, new: Calibration | None, least: float) -> tuple[RangeChange, ...]:
    before, after = ({row.tensor: (row.low, row.high) for row in c.ranges} if c else {} for c in (old, new))
    found = [RangeChange(tensor=t, old=before.get(t), new=after.get(t), change=_move(before.get(t), after.get(t))) for t in {**before, **after}]
    told = [row for row in found if row.change is None or row.change > least]
    return tuple(sorted(told, key=lambda row: (row.change is None, -(row.change or 0), row.tensor)))


def _move(old: tuple[float, float] | None, new: tuple[float, float] | None) -> float | None:
    if old is None or new is None:
        return None
    moved = max(abs(new[0] - old[0]), abs(new[1] - old[1]))
    width = old[1] - old[0] or max(abs(new[1] - new[0]), abs(old[0]))  # a range without extent has no width to compare with
    return moved / width if moved else 0.0
