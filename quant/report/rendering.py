"""Templates: where they lie, how values are shown and escaped, and the one script that a page may run."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from quant.report import words
from quant.report.rows import ICONS
from quant.report.words import visible

if TYPE_CHECKING:
    from jinja2 import Environment

_UNIT = re.compile(r"(?<=\d) (?=%|dB|ms|points?\b)")
_WORDS = ("percent", "milliseconds", "seconds", "size", "decibels", "number", "fixed", "plain", "small_share", "in_unit", "count", "listed")
_SCRIPTS = ("page.js", "tables.js", "graph.js")


@dataclass(frozen=True)
class Script:
    """The script of a page, and its digest, by which alone a browser is told to run it."""

    text: Markup
    digest: str


@cache
def script() -> Script:
    """The script of all pages: nothing of a report is in it."""
    text = "".join((files("quant.report") / "templates" / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Script(Markup(text), f"sha256-{digest}")  # noqa: S704 - a file of ours, whole


@cache
def environment() -> Environment:
    """Templates with what all pages share; whatever they show is made visible and escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 only a report needs it

    made = Environment(
        loader=PackageLoader("quant.report", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    made.filters.update(_filters())
    made.globals.update(icons=ICONS, nothing=words.NOTHING, script=script())
    return made


def _filters() -> dict[str, Callable[..., Any]]:
    return {name: getattr(words, name) for name in _WORDS} | {
        "r": lambda value: f"{value:.1f}".removesuffix(".0"),
        "glued": lambda text: _UNIT.sub("\N{NO-BREAK SPACE}", text),
    }


def _shown(value: Any) -> Any:
    """What an expression of a template shows; the last step before escaping."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
