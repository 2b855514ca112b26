"""A report as files."""

from __future__ import annotations

from pathlib import Path

from quant.core.files import write_text
from quant.report.document import Report
from quant.report.junit import junit_xml
from quant.report.load import REPORT_FILE
from quant.report.markdown import markdown
from quant.report.page import html_page


def report_texts(report: Report) -> dict[str, str]:
    """Name -> content of every file that a report is written as: the pages are made of what `report.json` says, and can be made of it again."""
    report = Report.model_validate_json(report.to_json())
    return {REPORT_FILE: report.to_json(), "report.md": markdown(report), "report.html": html_page(report), "junit.xml": junit_xml(report)}


def write_report(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write `report.json`, `report.md`, `report.html` and `junit.xml` into `folder`, each whole or not at all.

    All are made before the first is written, so that a mistake in one leaves the folder as it was.

    Raises:
        RunError: The folder cannot be written.
    """
    texts = report_texts(report)
    for name, text in texts.items():
        write_text(folder / name, text)
    return tuple(folder / name for name in texts)
