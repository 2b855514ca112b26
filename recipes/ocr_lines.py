"""The lines of `ocr-lines.yaml`: pieces of a book, as short as lines of print."""

from __future__ import annotations

import re
from pathlib import Path

from quant.data.rows.tables import read_csv
from quant.data.sources import fetch
from quant.errors import DataError
from quant.recipe.schema import DataSpec, Source

_TYPED = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u2026": "..."})
"""Quotation marks, dashes and the ellipsis of a printed book as they are typed: blurred, one kind cannot be told from the other."""


def lines(source: str, *, column: str, file: str | None = None, sha256: str | None = None, skip_rows: int = 0, longest: int = 60) -> list[dict[str, str]]:
    """One row a line of text, in the column `text`.

    Each text of a tab-separated table is broken between words into lines as long as fit, and the last, short line of each
    text is left out. Quotation marks and dashes are written as on a keyboard.

    Args:
        source: A package or another source, as in a recipe; a path starts at the current folder.
        column: The column of the texts.
        file: The table inside the source.
        sha256: SHA-256 that the table must have.
        skip_rows: Lines of the table below its header that hold no text.
        longest: Most characters to a line.

    Raises:
        DataError: There is no such column, or no line at all.
    """
    table = fetch(Source(source=source, file=file, sha256=sha256), base=Path.cwd(), where="lines")
    rows = read_csv(table, DataSpec(source=source, kind="tsv"))
    if column not in rows.columns:
        raise DataError(f"no column {column!r}", where=str(table), hint=f"known: {', '.join(rows.columns)}")
    texts = [str(rows[number].value(column)) for number in range(skip_rows, len(rows))]
    found = [line for text in texts for line in _broken(text.translate(_TYPED), longest)[:-1]]
    if not found:
        raise DataError("not one line of text", where=str(table), hint=f"are the texts longer than {longest} characters?")
    return [{"text": line} for line in found]


def _broken(text: str, longest: int) -> list[str]:
    """`text` in lines of at most `longest` characters; a word that is longer stands alone."""
    found: list[str] = []
    for word in re.findall(r"\S+", text):
        if found and len(found[-1]) + 1 + len(word) <= longest:
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found
