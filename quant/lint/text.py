"""What was found, for people: grouped by rule, with the engine's own words."""

from __future__ import annotations

import unicodedata
from itertools import groupby

from quant.lint import SEVERITIES
from quant.lint.check import Checked, Finding

_SHOWN = 10
_COUNTED = {"error": "refused", "silent": "silently otherwise", "warning": "to know"}


def printable(text: str) -> str:
    r"""Text from a file without what a terminal would act on.

    Example:
        >>> print(printable("conv\x1b[31m\n"))
        conv\x1b[31m\n
    """
    return "".join(c if unicodedata.category(c)[0] != "C" else c.encode("unicode_escape").decode("ascii") for c in text)


def checked_text(checked: Checked) -> str:
    """All findings as plain text, the worst rules first, and a line that counts them."""
    lines = []
    if checked.mended is not None:
        what = ", ".join(f"{rule} in {places} places" if places > 1 else f"{rule} in 1 place" for rule, places in checked.mended.places.items())
        lines += [f"mended: {what or 'nothing could be'}; written to {printable(checked.mended.path)}", ""]
    words = {rule.id: rule for rule in checked.rules}
    for (severity, rule), group in groupby(checked.findings, key=lambda f: (f.severity, f.rule)):
        places, said = list(group), words[rule]
        lines.append(f"{severity} {rule}: {said.title}")
        lines += [f"    {_place(f)}" for f in places[:_SHOWN]]
        if len(places) > _SHOWN:
            lines.append(f"    and {len(places) - _SHOWN} more (--json shows all)")
        lines += [f"  {name}: {text}" for name, text in (("why", said.why), ("fix", said.fix), ("TensorRT says", said.text), ("seen", said.observed)) if text]
        lines.append("")
    counts = [f"{checked.count(s)} {_COUNTED[s]}" for s in SEVERITIES]
    left = " left in the copy" if checked.mended is not None else ""
    lines.append(f"{printable(checked.model)} for {checked.target}: " + (", ".join(counts) + left if checked.findings else f"nothing found{left}"))
    return "\n".join(lines) + "\n"


def _place(finding: Finding) -> str:
    node = f"{finding.op} {finding.node!r}: " if finding.node else ""
    tensor = f" [{finding.tensor}]" if finding.tensor and repr(finding.tensor) not in finding.detail else ""
    return printable(node + finding.detail + tensor)
