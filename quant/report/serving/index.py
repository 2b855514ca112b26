"""Runs found in a folder, each in a few numbers; what cannot be read is listed with the reason."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal

from quant.core.documents import Decision, Document
from quant.errors import QuantError, RunError
from quant.report.document import Candidate, Report
from quant.report.load import REPORT_FILE, load_report
from quant.report.rows import Row, candidate_rows
from quant.report.words import in_unit, one_line

PAGES = {"report.html": "text/html; charset=utf-8", "report.json": "application/json; charset=utf-8", "report.md": "text/plain; charset=utf-8"}
"""Files of a run that may be looked at, and what each is."""
_INSIDE_A_RUN = frozenset({"artifacts", "calibration", "plans", "profiles"})
"""Folders that a run writes; no other run lies in them."""


class CandidateEntry(Document):
    """One candidate of a run: numbers to sort and draw by, and the same as text, a dash where there is nothing.

    Args:
        scheme: The scheme.
        target: The target.
        verdict: Its verdict; its status where it has none.
        notes: What must be said beside it.
        metric: Name of the first gate's metric; empty when there is none.
        value: Value of that metric.
        baseline: FP32's value of it.
        drop: How much worse than FP32.
        drop_upper: Upper bound of the drop.
        time: Time over FP32's.
        size: Size over FP32's.
        value_text: `value` with its unit.
        baseline_text: `baseline` with its unit.
        drop_text: `drop` with its unit.
        bound_text: `drop_upper` with its unit.
        time_text: `time`, or why there is none.
        size_text: `size`.
    """

    scheme: str
    target: str
    verdict: str
    notes: tuple[str, ...]
    metric: str
    value: float | None
    baseline: float | None
    drop: float | None
    drop_upper: float | None
    time: float | None
    size: float | None
    value_text: str
    baseline_text: str
    drop_text: str
    bound_text: str
    time_text: str
    size_text: str


class RunEntry(Document):
    """One run, or why it cannot be read.

    Args:
        key: What its pages are asked for by.
        run: Its folder, from the folder that was searched.
        pages: Which of its pages are there.
        problem: Why it cannot be read; empty when it can.
        recipe: The recipe's name.
        started: ISO 8601, UTC.
        verdict: Over all candidates; None when it cannot be read.
        sentence: The verdict in one sentence.
        candidates: Every candidate.
    """

    key: str
    run: str
    pages: tuple[str, ...] = ()
    problem: str = ""
    recipe: str = ""
    started: str = ""
    verdict: Decision | None = None
    sentence: str = ""
    candidates: tuple[CandidateEntry, ...] = ()


class RunIndex(Document):
    """A span of the runs in a folder.

    Args:
        version: Version of this document's form.
        folder: Name of the folder.
        total: How many runs there are.
        start: The first of this span, from 0.
        runs: The runs, by their folders' names.
    """

    version: Literal[1] = 1
    folder: str
    total: int
    start: int
    runs: tuple[RunEntry, ...]


@dataclass(frozen=True)
class _Read:
    """An entry and the files that it was made from, as they were."""

    stamp: tuple[tuple[int, int, int] | None, ...]
    entry: RunEntry


class Shelf:
    """The runs below a folder; a report is read when it is asked for, and again only when it has changed.

    Args:
        folder: The folder.

    Raises:
        RunError: There is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise RunError("no such folder", where=str(folder), hint="give a folder in which runs lie")
        self.folder = folder.resolve()
        self._read: dict[str, _Read] = {}
        self._places: dict[str, Path] = {}
        self._lock = Lock()

    def index(self, *, start: int = 0, most: int | None = None) -> RunIndex:
        """What lies below the folder: at most `most` runs from place `start` on; only these are read."""
        with self._lock:
            found = {_key(path, self.folder): path for path in sorted(_reports(self.folder))}
            if start == 0:  # what is gone is forgotten
                self._read = {key: read for key, read in self._read.items() if key in found}
            self._places = found
            span = list(found)[start : None if most is None else start + most]
            runs = tuple(self._entry(key) for key in span)
        return RunIndex(folder=one_line(self.folder.name or str(self.folder)), total=len(found), start=start, runs=runs)

    def page(self, key: str, name: str) -> Path | None:
        """The file `name` of the run `key`; None when there is none: nothing but a run's own pages is ever found."""
        if name not in PAGES:
            return None
        with self._lock:
            if key not in self._places:
                self._places = {_key(path, self.folder): path for path in _reports(self.folder)}
            report = self._places.get(key)
        path = report.with_name(name) if report else None
        return path if path and _own(path) else None

    def _entry(self, key: str) -> RunEntry:
        report = self._places[key]
        stamp = tuple(_stamp(report.with_name(name)) for name in PAGES)
        known = self._read.get(key)
        if known is None or known.stamp != stamp:
            known = self._read[key] = _Read(stamp, _entry(key, report, self.folder))
        return known.entry


def _reports(folder: Path) -> Iterator[Path]:
    """Every report below `folder`; links are not followed, and folders that may not be read are passed over."""
    for place, folders, files in os.walk(folder):
        hidden = {name for name in folders if name.startswith(".")}
        folders[:] = sorted(set(folders) - hidden - (_INSIDE_A_RUN if REPORT_FILE in files else set()))
        if REPORT_FILE in files:
            yield Path(place, REPORT_FILE)


def _key(report: Path, folder: Path) -> str:
    return hashlib.sha256(os.fsencode(report.parent.relative_to(folder))).hexdigest()[:20]


def _own(path: Path) -> bool:
    """Whether it is a file, and no link to one elsewhere."""
    return path.is_file() and not path.is_symlink()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _entry(key: str, path: Path, folder: Path) -> RunEntry:
    run = one_line(path.parent.relative_to(folder).as_posix())
    pages = tuple(name for name in PAGES if _own(path.with_name(name)))
    if REPORT_FILE not in pages:
        return RunEntry(key=key, run=run, problem="its report is a link, which is not followed")
    try:
        report = load_report(path)
    except QuantError as error:
        return RunEntry(key=key, run=run, pages=pages, problem=one_line(error.what))
    candidates = tuple(_candidate(report, *pair) for pair in zip(report.candidates, candidate_rows(report), strict=True))
    return RunEntry(
        key=key,
        run=run,
        pages=pages,
        recipe=one_line(report.name),
        started=one_line(report.timings.started),
        verdict=report.verdict,
        sentence=one_line(report.sentence),
        candidates=candidates,
    )


def _candidate(report: Report, candidate: Candidate, row: Row) -> CandidateEntry:
    unit = candidate.gates[0].unit if candidate.gates else report.baseline.units.get(candidate.metric or "", "")
    baseline = report.baseline.metrics.get(candidate.metric or "")
    return CandidateEntry(
        scheme=row.scheme,
        target=row.target,
        verdict=row.verdict,
        notes=row.notes,
        metric=one_line(candidate.metric or ""),
        value=candidate.value,
        baseline=baseline,
        drop=candidate.drop,
        drop_upper=candidate.drop_upper,
        time=None if candidate.emulated else candidate.latency_ratio,
        size=candidate.size_ratio,
        value_text=row.value,
        baseline_text="" if baseline is None else in_unit(baseline, unit),
        drop_text=row.drop,
        bound_text=row.bound,
        time_text=row.time,
        size_text=row.size_ratio,
    )
