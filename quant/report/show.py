"""Pages made anew: of a run that is over, of two runs, of a ladder; a run's folder is left as its manifest says."""

from __future__ import annotations

from pathlib import Path

from quant.core.files import refuse_folder, write_text
from quant.errors import RunError
from quant.report.compare_page import compare_page
from quant.report.ladder import Ladder
from quant.report.ladder_page import ladder_page
from quant.report.load import load_report
from quant.report.page import html_page

PAGE = "report.html"
_ENDINGS = frozenset({".html", ".htm"})


def show_run(run: Path, *, output: Path | None = None, ladder: Path | None = None) -> Path:
    """The page of a run, made of its report; where it lies.

    Without `output` it is the run's own page when that says the same, and else a file beside the folder.

    Args:
        run: Folder of the run, or its `report.json`.
        output: File to write.
        ladder: JSON of a ladder that joins the page.

    Raises:
        RunError: There is no such run or ladder, or the file cannot be written.
    """
    _refuse(output)
    page = html_page(load_report(run), ladder=None if ladder is None else Ladder.load(ladder))
    folder = run.parent if run.suffix == ".json" else run
    own = folder / PAGE
    if output is None and own.is_file() and own.read_bytes() == page.encode():
        return own
    place = output or folder.resolve().with_name(f"{folder.resolve().name}.html")
    write_text(place, page)
    return place


def show_comparison(old: Path, new: Path, *, output: Path | None = None) -> Path:
    """The page of two runs side by side; where it lies: beside the newer run unless `output` says otherwise.

    Args:
        old: Folder of the older run, or its `report.json`.
        new: Folder of the newer run, or its `report.json`.
        output: File to write.

    Raises:
        RunError: There is no such run, or the file cannot be written.
    """
    _refuse(output)
    page = compare_page(load_report(old), load_report(new))
    a, b = ((run.parent if run.suffix == ".json" else run).resolve() for run in (old, new))
    place = output or b.with_name(f"{a.name}-and-{b.name}.html")
    write_text(place, page)
    return place


def write_ladder(ladder: Ladder, output: Path) -> None:
    """Write a ladder as its document (`.json`) or as a page (`.html`).

    Args:
        ladder: The ladder.
        output: File to write.

    Raises:
        RunError: The name says neither, or the file cannot be written.
    """
    check_ladder_file(output)
    if output.suffix == ".json":
        ladder.save(output)
    else:
        write_text(output, ladder_page(ladder))


def check_ladder_file(output: Path) -> None:
    """Refuse a file that a ladder cannot be written as, before it is climbed.

    Raises:
        RunError: The name ends neither in `.json` nor in `.html`, or is that of a folder.
    """
    refuse_folder(output)
    if output.suffix not in {".json", *_ENDINGS}:
        raise RunError("a ladder is written as .json or .html", where=str(output), hint="give such a name with --output")


def _refuse(output: Path | None) -> None:
    if output is None:
        return
    refuse_folder(output)
    if output.suffix not in _ENDINGS:
        raise RunError("a page is written as .html", where=str(output), hint="give such a name with --output")
