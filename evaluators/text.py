"""Reading text out of a network's outputs (CTC), and comparing it with what it should be."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from evaluators.outputs import Array, OutputOptions, Outputs, pick
from quant.errors import DataError

FROM_METADATA = "metadata"
"""The alphabet that stands for what the model's metadata hold; the engine puts it in its place."""


class TextOptions(OutputOptions):
    """How text is read from the output, and what differences do not count."""

    alphabet: str | tuple[str, ...] = Field(
        FROM_METADATA, description="the symbols in class order (a list; or a text: one a line, or one a character); `metadata` takes them from the model"
    )
    metadata_key: str = Field("character", description="key of the model's metadata that holds the alphabet")
    blank: int = Field(0, description="class of the CTC blank; -1 is the last")
    ignore: tuple[Literal["case", "punctuation", "spaces"], ...] = Field((), description="differences that do not count")
    unicode: Literal["none", "NFC", "NFKC"] = Field("NFC", description="Unicode normalization of both texts")


def symbols_of(alphabet: str | Sequence[str], classes: int, blank: int) -> tuple[str, ...]:
    """The symbol of each class, the blank's being empty.

    An alphabet of `classes` symbols already has one for the blank; of one less, the blank is put in; of two less, a space is
    also appended, as recognizers with a separate space flag have it.

    Raises:
        DataError: The alphabet does not fit the number of classes.

    Example:
        >>> symbols_of("ab", 3, 0)
        ('', 'a', 'b')
        >>> symbols_of(["a", "b"], 4, 0)
        ('', 'a', 'b', ' ')
    """
    if isinstance(alphabet, str):
        alphabet = alphabet.strip("\n").split("\n") if "\n" in alphabet else list(alphabet)
    symbols = list(alphabet)
    place = blank % classes
    if len(symbols) == classes:
        symbols[place] = ""
        return tuple(symbols)
    if len(symbols) == classes - 2:
        symbols.append(" ")
    if len(symbols) != classes - 1:
        raise DataError(
            f"{len(alphabet)} symbols in the alphabet, but {classes} classes in the output", hint="the alphabet has all symbols, with or without the blank"
        )
    symbols.insert(place, "")
    return tuple(symbols)


def read_text(outputs: Outputs, options: TextOptions) -> str | None:
    """The text of one sample: CTC, greedy — the best class of each step, repeats merged, blanks dropped; None for NaN.

    An output of strings is taken as it is; of integers, as the classes of the steps.

    Raises:
        DataError: The output is no sequence of class scores, or the alphabet does not fit it.
    """
    array = pick(outputs, options.output)
    if array.dtype.kind in "OSU":
        return "".join(_decoded(piece) for piece in array.reshape(-1))
    if options.alphabet == FROM_METADATA:
        hint = f"set the metric's alphabet, or metadata_key (now {options.metadata_key!r})"
        raise DataError("the alphabet was to come from the model's metadata, which has none", hint=hint)
    best, classes = _best(array, options)
    if best is None:
        return None
    symbols = symbols_of(options.alphabet, classes, options.blank)
    kept = np.append(True, best[1:] != best[:-1]) if len(best) else np.zeros(0, bool)
    return "".join(symbols[c] for c in best[kept])


def _best(array: Array, options: TextOptions) -> tuple[Array | None, int]:
    if np.issubdtype(array.dtype, np.integer):
        best = array.reshape(-1)
        size = len(options.alphabet.splitlines()) if isinstance(options.alphabet, str) and "\n" in options.alphabet else len(options.alphabet)
        return best, max(size + 1, int(best.max(initial=0)) + 1)
    if array.ndim != 2:  # noqa: PLR2004 - steps and classes
        raise DataError(f"output of shape {list(array.shape)} is no [steps, classes]", hint="name the output with the class scores of each step")
    return (None if np.isnan(array).any() else array.argmax(axis=1)), array.shape[1]


def _decoded(piece: Any) -> str:
    return piece.decode("utf-8", "replace") if isinstance(piece, bytes) else str(piece)


def normalized(text: str, options: TextOptions) -> str:
    """`text` without the differences that do not count."""
    if options.unicode != "none":
        text = unicodedata.normalize(options.unicode, text)
    if "case" in options.ignore:
        text = text.casefold()
    if "punctuation" in options.ignore:
        text = "".join(c for c in text if c not in string.punctuation and not unicodedata.category(c).startswith("P"))
    return "".join(text.split()) if "spaces" in options.ignore else " ".join(text.split())


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that turn `first` into `second` (Levenshtein).

    Example:
        >>> edit_distance("kitten", "sitting")
        3
        >>> edit_distance("a b c".split(), "a c".split())
        1
    """
    codes = {symbol: code for code, symbol in enumerate(dict.fromkeys([*first, *second]))}
    target = np.array([codes[s] for s in second], dtype=np.int64)
    steps = np.arange(len(target) + 1)
    row = steps.copy()
    for count, symbol in enumerate(first, start=1):
        # Substitution and deletion look at the row above; a run of insertions is a running minimum along the row.
        best = np.append(count, np.minimum(row[1:] + 1, row[:-1] + (target != codes[symbol])))
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])
