"""Names and texts as they are shown: nothing in them hides or acts."""

from __future__ import annotations

import unicodedata

_KEPT = frozenset("\n\t")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
NOTHING = "\N{EN DASH}"
"""Shown where there is no value."""


def visible(text: str) -> str:
    r"""`text` with control, direction and unassigned characters written out, so that a name cannot hide or act.

    Example:
        >>> print(visible("a\x1b[31mb"))
        a\x1b[31mb
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(c) if unicodedata.category(c) in _HIDDEN and c not in _KEPT else c for c in text)


def _spelled(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 the ends of Python's own escapes
