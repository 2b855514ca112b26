"""What validation found, for people: as plain text, and as markdown for the summary of a job."""

from __future__ import annotations

from quant.report.words import one_line, visible
from quant.validation.findings import Checked, Validation

_MARKS = {"ok": "ok", "failed": "FAILED", "inconclusive": "inconclusive", "skipped": "skipped"}
_SIGNS = {"ok": "✅", "failed": "❌", "inconclusive": "❔", "skipped": "⏭️"}
_SHOWN = 10


def validation_text(found: Validation) -> str:
    """One line for each check, what is wrong below it, and the verdict."""
    lines: list[str] = []
    width = max((len(check.title) for check in found.checks), default=0)
    for name, checks in _by_candidate(found).items():
        lines += [one_line(name) if name else one_line(found.subject), ""]
        for check in checks:
            lines.append(f"  {_MARKS[check.status]:12}  {check.title:{width}}  {one_line(check.said)}".rstrip())
            lines += [f"      {one_line(str(finding))}" for finding in check.findings[:_SHOWN]]
            if len(check.findings) > _SHOWN:
                lines.append(f"      and {len(check.findings) - _SHOWN} more (--json shows all)")
        lines.append("")
    return "\n".join([*lines, one_line(found.sentence)]) + "\n"


def validation_markdown(found: Validation) -> str:
    """The same as a table for each candidate."""
    lines = [f"### {_cell(found.sentence)}", ""]
    for name, checks in _by_candidate(found).items():
        lines += [f"**{_cell(name or found.subject)}**", "", "| | check | found |", "|---|---|---|"]
        for check in checks:
            told = [check.said, *(str(finding) for finding in check.findings[:_SHOWN])]
            if len(check.findings) > _SHOWN:
                told.append(f"and {len(check.findings) - _SHOWN} more")
            lines.append(f"| {_SIGNS[check.status]} {check.status} | {_cell(check.title)} | {'<br>'.join(_cell(text) for text in told if text)} |")
        lines.append("")
    return "\n".join(lines)


def _by_candidate(found: Validation) -> dict[str, list[Checked]]:
    parts: dict[str, list[Checked]] = {}
    for check in found.checks:
        parts.setdefault(check.candidate, []).append(check)
    return parts


def _cell(text: str) -> str:
    r"""`text` on one line, with nothing in it that markdown or HTML would act on.

    Example:
        >>> _cell("a|b <script>")
        'a\\|b &lt;script&gt;'
    """
    escaped = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "\\`*_|[]":
        escaped = escaped.replace(sign, f"\\{sign}")
    return " ".join(escaped.split())
