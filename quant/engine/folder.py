"""The folder that a run leaves behind: reports, artifacts, plans, the calibration table, and a manifest with every SHA-256."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from quant.core.digest import digest_of_file
from quant.core.files import disk_errors, whole_folder, write_text
from quant.core.table import CalibrationTable
from quant.engine.candidates import Built
from quant.engine.lock import locked
from quant.engine.summary import Outcome, artifact_folder
from quant.errors import RunError
from quant.report.document import Report
from quant.report.write import write_report

MANIFEST = "manifest.json"
_OURS = frozenset({".lock", "report.json", MANIFEST})


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
        yield


def write_folder(folder: Path, report: Report, outcomes: Sequence[Outcome], baselines: Mapping[str, Built], table: CalibrationTable | None) -> None:
    """Write everything that a run leaves behind; each part appears whole or not at all."""
    with whole_folder(folder / "artifacts") as part:
        for base in baselines.values():
            _copy(base, part)
        for outcome in outcomes:
            if outcome.built is not None:
                _copy(outcome.built, part)
    with whole_folder(folder / "plans") as part:
        for outcome in outcomes:
            if outcome.built is not None and outcome.built.plan is not None:
                outcome.built.plan.save(part / outcome.target / f"{outcome.scheme}.json")
            if outcome.audit is not None:
                outcome.audit.save(part / outcome.target / f"{outcome.scheme}.audit.json")
    with whole_folder(folder / "calibration") as part:
        if table is not None:
            table.save(part)
    write_text(folder / "recipe.yaml", report.recipe)
    write_report(report, folder)
    names = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in {".lock", MANIFEST})
    files = {p.relative_to(folder).as_posix(): digest_of_file(p) for p in names}
    write_text(folder / MANIFEST, json.dumps({"version": 1, "files": files}, indent=1, sort_keys=True) + "\n")


def _copy(built: Built, artifacts: Path) -> None:
    place = artifacts / Path(artifact_folder(built)).relative_to("artifacts")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(built.folder, place)
