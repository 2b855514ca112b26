"""The folder that a run leaves behind: reports, artifacts, plans, the calibration table, and a manifest with every SHA-256."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from quant.core.digest import digest_of_file
from quant.core.files import disk_errors, write_text
from quant.core.table import CalibrationTable
from quant.engine.candidates import Built
from quant.engine.lock import LOCK, locked, part_folder
from quant.engine.summary import Outcome, artifact_folder
from quant.errors import RunError
from quant.report.document import Report
from quant.report.write import write_report

MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
"""A signature over the manifest; it lies beside it and is no part of it."""
_OURS = frozenset({LOCK, "report.json", MANIFEST})
_FOLDERS = frozenset({"artifacts", "plans", "calibration"})
_LEFT = (".*.part", ".*.old")


@contextmanager
def open_folder(folder: Path) -> Iterator[None]:
    """Hold a run's folder, made if it is missing.

    Raises:
        RunError: It is a file, holds something else than a run, is held by another run, or cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError("is a file, not a folder", where=str(folder), hint="give a folder with --output")
    with disk_errors(folder):
        if folder.is_dir() and any(folder.iterdir()) and not any((folder / name).exists() for name in _OURS):
            raise RunError("is not empty and holds no run", where=str(folder), hint="give an empty or a new folder with --output")
    with locked(folder):
        for left in [path for pattern in _LEFT for path in folder.glob(pattern)]:  # of a run that was killed; nobody else writes here
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield


def write_folder(folder: Path, report: Report, outcomes: Sequence[Outcome], baselines: Mapping[str, Built], table: CalibrationTable | None) -> None:
    """Write everything that a run leaves behind: aside first, so that a disk that is full leaves the folder as it was.

    A folder with a manifest is complete: it goes first and comes last.

    Raises:
        RunError: The disk is full, or the folder cannot be written.
    """
    with disk_errors(folder), part_folder(folder, "run") as part:
        _write(part, report, outcomes, baselines, table)
        names = sorted(p for p in part.rglob("*") if p.is_file())
        files = {p.relative_to(part).as_posix(): digest_of_file(p) for p in names}
        made_of = {
            "model": report.baseline.model_sha256,
            "samples": report.data.samples_sha256,
            "recipe": digest_of_file(part / "recipe.yaml"),
            "environment": report.environment,
        }
        write_text(part / MANIFEST, json.dumps({"version": 1, "files": files, "made_of": made_of}, indent=1, sort_keys=True) + "\n")
        for old in (SIGNATURE, MANIFEST):
            (folder / old).unlink(missing_ok=True)
        for stale in _FOLDERS - {new.name for new in part.iterdir()}:
            shutil.rmtree(folder / stale, ignore_errors=True)
        for new in sorted(part.iterdir(), key=lambda path: path.name == MANIFEST):
            _swap(new, folder / new.name)


def _write(part: Path, report: Report, outcomes: Sequence[Outcome], baselines: Mapping[str, Built], table: CalibrationTable | None) -> None:
    for base in baselines.values():
        _copy(base, part)
    for outcome in outcomes:
        if outcome.built is not None:
            _copy(outcome.built, part)
        if outcome.built is not None and outcome.built.plan is not None:
            outcome.built.plan.save(part / "plans" / outcome.target / f"{outcome.scheme}.json")
        if outcome.audit is not None:
            outcome.audit.save(part / "plans" / outcome.target / f"{outcome.scheme}.audit.json")
    if table is not None:
        # Second moments only serve to choose codes, and take hundreds of MiB: they stay in the cache.
        replace(table, moments={}).save(part / "calibration")
    write_text(part / "recipe.yaml", report.recipe)
    write_report(report, part)


def _swap(new: Path, place: Path) -> None:
    """Move `new` to `place`; what was there goes."""
    if place.is_dir():
        old = place.with_name(f".{place.name}.old")
        place.rename(old)
        new.rename(place)
        shutil.rmtree(old)
    else:
        new.replace(place)


def _copy(built: Built, part: Path) -> None:
    place = part / artifact_folder(built)
    for file in sorted(path for path in built.folder.rglob("*") if path.is_file()):  # `copytree` hides that a disk is full
        copy = place / file.relative_to(built.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
