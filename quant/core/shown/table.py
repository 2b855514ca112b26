"""A document as a table: for a page, for a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from quant.core.text import NOTHING, visible

if TYPE_CHECKING:
    import pandas as pd

Cell = str | int | float | bool | None
_MOST_ROWS = 25
_LONGEST = 120
_LEAST = 14
"""Characters that a column of text has room for at least."""

# Colours come from the page around it, so that the table is as readable on a dark page as on a light one.
_BOX = "overflow-x:auto;max-width:100%;color:inherit;font-size:13px;line-height:1.45"
_HEAD = "padding:3px 10px 3px 0;border:0;border-bottom:1px solid rgba(128,128,128,.6);font-weight:600;background:transparent;color:inherit;white-space:nowrap"
_CELL = (
    "padding:2px 10px 2px 0;border:0;border-bottom:1px solid rgba(128,128,128,.2);background:transparent;color:inherit;max-width:48ch;overflow-wrap:anywhere"
)


@dataclass(frozen=True)
class Table:
    """What a document says, row by row.

    Args:
        title: What it is, in a line.
        columns: Heads.
        rows: As many cells each as there are columns.
        facts: What is to be said of the whole: name -> value.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    facts: Mapping[str, Cell] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """The rows, all of them."""
        import pandas as pd  # noqa: PLC0415 - heavy

        return pd.DataFrame([tuple(row) for row in self.rows], columns=list(self.columns))

    def plain(self, most: int = _MOST_ROWS) -> str:
        r"""The table as lines of text, in columns; nothing in a name acts in a terminal.

        Args:
            most: How many rows at most; what is left out is said.

        Example:
            >>> print(Table("Model m", ["layer", "weights"], [["a\nb", 3], ["conv1", 1200]], {"layers": 2}).plain())
            Model m
            layers: 2
            layer  weights
            a\nb         3
            conv1    1,200
        """
        rows = [[_line(shown(cell)) for cell in row] for row in self.rows[:most]]
        numeric = [all(isinstance(row[at], int | float | None) and not isinstance(row[at], bool) for row in self.rows) for at in range(len(self.columns))]
        table = [[*map(_line, self.columns)], *rows] if self.columns else []
        widths = [max(len(row[at]) for row in table) for at in range(len(self.columns))]
        lines = ["  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True)).rstrip() for row in table]
        left = len(self.rows) - most
        facts = " · ".join(f"{_line(name)}: {_line(shown(value))}" for name, value in self.facts.items())
        return "\n".join([_line(self.title), *([facts] if facts else []), *lines, *([f"… and {left:,} more rows; .to_frame() has all"] if left > 0 else [])])

    def html(self, most: int = _MOST_ROWS) -> str:
        """The table as HTML that needs nothing else; every text is escaped.

        Args:
            most: How many rows at most; what is left out is said.

        Example:
            >>> page = Table("a <b>", ["layer"], [["<script>"]]).html()
            >>> "<script>" in page, "&lt;script&gt;" in page
            (False, True)
        """
        numeric = [all(isinstance(row[at], int | float | None) and not isinstance(row[at], bool) for row in self.rows) for at in range(len(self.columns))]
        widths = [max((len(shown(row[at])) for row in self.rows[:most]), default=0) for at in range(len(self.columns))]
        head = "".join(f'<th scope="col" style="{_HEAD};text-align:{_side(n)}">{text(c)}</th>' for c, n in zip(self.columns, numeric, strict=True))
        body = "".join(
            f"<tr>{''.join(_cell(cell, right=n, width=w) for cell, n, w in zip(row, numeric, widths, strict=True))}</tr>" for row in self.rows[:most]
        )
        left = len(self.rows) - most
        more = f'<div style="opacity:.75">… and {left:,} more rows; <code>.to_frame()</code> has all</div>' if left > 0 else ""
        table = f'<table style="border-collapse:collapse;margin:4px 0;background:transparent"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        facts = " · ".join(f"{text(name)}: {text(shown(value))}" for name, value in self.facts.items())
        said = f'<div style="opacity:.85">{facts}</div>' if facts else ""
        title = f'<div style="font-weight:600">{text(self.title)}</div>'
        return f'<div class="quant-document" style="{_BOX}">{title}{said}{table if self.columns else ""}{more}</div>'


def _line(said: str) -> str:
    return visible(said).replace("\n", "\\n").replace("\t", "\\t")


def text(said: str) -> str:
    """`said` for HTML: escaped, and nothing in it hides.

    Example:
        >>> text("<img src=x onerror=alert(1)>")
        '&lt;img src=x onerror=alert(1)&gt;'
    """
    return escape(visible(said))


def shown(value: Cell) -> str:
    r"""A cell for people.

    Example:
        >>> shown(0.123456), shown(True), shown(1234567), ascii(shown(None))
        ('0.1235', 'yes', '1,234,567', "'\\u2013'")
    """
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case _:
            return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"


def _cell(value: Cell, *, right: bool, width: int) -> str:
    """A cell; a long name may break anywhere, but a column of names is never squeezed to a letter a line."""
    room = "white-space:nowrap" if right else f"min-width:{min(width, _LEAST)}ch"
    return f'<td style="{_CELL};text-align:{_side(right)};{room}">{text(shown(value))}</td>'


def _side(right: bool) -> str:  # noqa: FBT001 - of two
    return "right" if right else "left"
