"""Reports of runs that are over."""

from __future__ import annotations

import json
import math
from pathlib import Path

from quant.core.arguments import with_checked_arguments
from quant.errors import RunError
from quant.report.document import REPORT_VERSION, Report

REPORT_FILE = "report.json"


@with_checked_arguments
def load_report(run_folder: Path | str) -> Report:
    """The report of a run.

    Args:
        run_folder: Folder of the run, or a report's JSON file.

    Raises:
        RunError: There is no report, it cannot be read, or it is of another version.
    """
    run_folder = Path(run_folder)
    path = run_folder if run_folder.suffix == ".json" else run_folder / REPORT_FILE
    if not run_folder.exists():
        raise RunError("no such run", where=str(run_folder), hint="give the folder that a run wrote")
    if run_folder.is_file() and path != run_folder:
        raise RunError("is a file, not the folder of a run", where=str(run_folder), hint=f"give the folder that a run wrote, or its {REPORT_FILE}")
    if not path.is_file():
        raise RunError(f"this folder has no {REPORT_FILE}", where=str(run_folder), hint="the run did not finish, or this is another folder; run it again")
    try:
        version = json.loads(path.read_text(encoding="utf-8"), parse_constant=_finite, parse_float=_finite)["version"]
    except OSError as error:
        raise RunError(f"cannot read this report: {error.strerror}", where=str(path), hint="ask for the right to read it") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError("not a report", where=str(path), hint="run the recipe again") from error
    if version != REPORT_VERSION:
        hint = "read it with the version of the toolkit that wrote it, or run the recipe again"
        raise RunError(f"a report of version {version!r}; this toolkit reads version {REPORT_VERSION}", where=str(path), hint=hint)
    return Report.load(path)


def _finite(text: str) -> float:
    """A number of a report; none is written that is not finite, and nothing could be said of it."""
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value
