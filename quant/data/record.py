"""Records: one row or one file, as it lies in the source, before a processor makes model inputs of it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from quant.core.registry import did_you_mean
from quant.errors import DataError

ONLY_INPUT = ""
"""The name under which a processor gives an array that goes into the model's only input, whatever that is called."""

FILE = "file"
"""The column that holds a file's name, relative to the source, where a record is a file."""


@dataclass(frozen=True)
class Blob:
    """A file whose bytes are read when they are asked for."""

    path: Path

    def read(self) -> bytes:
        """The file's bytes.

        Raises:
            DataError: The file cannot be read.
        """
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", where=str(self.path)) from error


@dataclass(frozen=True)
class Record:
    """One row or file.

    Args:
        index: Its position in the source, from 0.
        values: Column -> value. Large files are `Blob`s.
        place: How messages call it: `movies.tsv row 17`.
        folder: Where relative file names in columns start.
    """

    index: int
    values: Mapping[str, Any]
    place: str
    folder: Path

    def value(self, column: str) -> Any:
        """The value of `column`.

        Raises:
            DataError: This record has no such column.
        """
        if column not in self.values:
            raise DataError(f"no column {column!r}", where=self.place, hint=did_you_mean(column, tuple(self.values)))
        return self.values[column]


@dataclass(frozen=True)
class Rows:
    """The records of one file or named split, read when they are asked for.

    Args:
        name: The file's or split's name, for messages.
        columns: Names of the columns that records have.
        count: Number of records.
        get: Gives the values of the record at a position.
        folder: Where relative file names in columns start.
        label_column: The column that holds the label when the recipe does not say.
        classes: Class names in order, where the form of the data tells them (class folders).
    """

    name: str
    columns: tuple[str, ...]
    count: int
    get: Callable[[int], Mapping[str, Any]]
    folder: Path
    label_column: str | None = None
    classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int, /) -> Record:
        values = self.get(index)
        place = str(values[FILE]) if isinstance(values.get(FILE), str) else f"{self.name} row {index}"
        return Record(index, values, place, self.folder)


def is_missing(value: Any) -> bool:
    """Whether `value` stands for nothing: None, NaN, or an empty text.

    Example:
        >>> is_missing(float("nan")), is_missing(""), is_missing(0)
        (True, True, False)
    """
    return value is None or (isinstance(value, str) and not value.strip()) or (is_number(value) and math.isnan(value))


def is_number(value: Any) -> TypeGuard[float]:
    """Whether `value` is a real number (a bool counts)."""
    return isinstance(value, bool | int | float | np.integer | np.floating | np.bool_)


def content_of(record: Record, columns: Sequence[str]) -> bytes:
    """SHA-256 over the values of `columns`: equal for equal inputs, wherever they come from.

    Numbers are compared by value, so that 5 and 5.0 (the same column, read from two files) are equal; arrays by type,
    shape and bytes; files by their bytes.
    """
    running = hashlib.sha256()
    for column in columns:
        running.update(f"{column}\0".encode())
        for piece in _pieces(record.value(column)):
            running.update(len(piece).to_bytes(8, "little"))
            running.update(piece)
    return running.digest()


def _pieces(value: Any) -> list[bytes]:
    if isinstance(value, np.ndarray):
        return _array_pieces(value)
    if isinstance(value, Mapping):
        return [b"{", *(piece for key in sorted(value, key=str) for piece in (str(key).encode(), *_pieces(value[key]))), b"}"]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _sequence_pieces(value)
    return [_single(value)]


def _single(value: Any) -> bytes:
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if is_number(value):
        return b"n" + _number(value)
    if isinstance(value, Blob | bytes):
        return b"b" + (value.read() if isinstance(value, Blob) else value)
    if hasattr(value, "tobytes") and hasattr(value, "mode"):  # a decoded picture
        return b"p" + f"{value.mode}{value.size}".encode() + bytes(value.tobytes())
    return b"o" + repr(value).encode()


def _number(value: float) -> bytes:
    whole = not isinstance(value, float | np.floating) or float(value).is_integer()
    return str(int(value)).encode() if whole else float(value).hex().encode()


def _array_pieces(value: np.ndarray[Any, Any]) -> list[bytes]:
    if value.dtype.hasobject:
        return [b"[", *(piece for item in value.tolist() for piece in _pieces(item)), b"]"]
    return [b"a", f"{value.dtype.str}{value.shape}".encode(), np.ascontiguousarray(value).tobytes()]


def _sequence_pieces(value: Sequence[Any]) -> list[bytes]:
    if value and all(isinstance(item, int | float) for item in value):  # the common case, without a call for each item
        return [b"f", np.asarray(value, np.float64).tobytes()]
    return [b"[", *(piece for item in value for piece in _pieces(item)), b"]"]
