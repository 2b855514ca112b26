"""Labels: read from a column or a file's name, and made a class, a number or a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quant.core.registry import did_you_mean
from quant.data.conditions import number_of, value_key
from quant.data.record import FILE, Record, is_missing, is_number
from quant.errors import DataError, RecipeError
from quant.recipe.schema import Label

LabelValue = int | float | str | npt.NDArray[np.generic] | None
Where = Callable[[tuple[str | int, ...]], str]

_SPEC = ("data", "label")


class LabelReader:
    """Reads the label of a record.

    Args:
        spec: What the recipe says; None: take the default column as it is.
        columns: The columns that records have.
        default: The column to take when the recipe names none; None: samples have no label.
        classes: Class names in order, where the form of the data tells them.
        where: Gives the place in the recipe of a location.

    Raises:
        DataError: The label's column does not exist.
        RecipeError: The recipe does not say where the label comes from.
    """

    def __init__(self, spec: Label | None, *, columns: Collection[str], default: str | None, classes: tuple[str, ...] | None, where: Where) -> None:
        self._spec = spec or Label()
        self._pattern = self._compile(where)
        self.column = None if self._pattern else self._spec.column or default
        if spec is not None and self.column is None and self._pattern is None:
            raise RecipeError("the label has no source", where=where(_SPEC), hint="give `column` or `file_name`")
        if self.column is not None and self.column not in columns:
            raise DataError(f"no column {self.column!r} for the label", where=where((*_SPEC, "column")), hint=did_you_mean(self.column, tuple(columns)))
        if self._pattern is not None and FILE not in columns:
            raise DataError("these data are not files, so labels cannot come from file names", where=where((*_SPEC, "file_name")), hint="use `column`")
        known = self._spec.classes or (classes if self._spec.above is None and self._spec.kind in {"auto", "class"} else None)
        self._classes = {value_key(value): position for position, value in enumerate(known)} if known else None

    def _compile(self, where: Where) -> re.Pattern[str] | None:
        if self._spec.file_name is None:
            return None
        place = where((*_SPEC, "file_name"))
        try:
            pattern = re.compile(self._spec.file_name)
        except re.error as error:
            raise RecipeError(f"not a regular expression: {error}, in {self._spec.file_name!r}", where=place) from error
        if pattern.groups < 1:
            raise RecipeError(f"{self._spec.file_name!r} has no group", where=place, hint="put what is the label into parentheses: `(\\d+)\\.jpg`")
        return pattern

    def read(self, record: Record) -> LabelValue:
        """The label of `record`; None when samples have none.

        Raises:
            DataError: The label is missing, no number, no known class, or below 0; the message names the row and the value.
        """
        if self._pattern is None and self.column is None:
            return None
        value = self._raw(record)
        if is_missing(value):
            raise DataError(f"has no label ({self.column!r} is empty)", where=record.place, hint="leave such rows out with `data.where`")
        if self._spec.above is not None:
            return int(number_of(value, record, str(self.column)) > self._spec.above)
        if self._classes is not None:
            return self._class(value, record)
        return _as_kind(value, self._spec.kind, record)

    def _raw(self, record: Record) -> Any:
        if self._pattern is None:
            return record.value(str(self.column))
        name = PurePosixPath(str(record.value(FILE))).name
        match = self._pattern.search(name)
        if match is None:
            raise DataError(f"file name {name!r} does not match {self._pattern.pattern!r}", where=record.place)
        return match.group(1)

    def _class(self, value: Any, record: Record) -> int:
        assert self._classes is not None
        if isinstance(value, np.ndarray) or value_key(value) not in self._classes:
            known = tuple(str(key) for key in self._classes)
            raise DataError(f"label {str(value)[:60]!r} is none of the {len(known)} classes", where=record.place, hint=did_you_mean(str(value), known))
        return self._classes[value_key(value)]


def _as_kind(value: Any, kind: Literal["auto", "class", "number", "text"], record: Record) -> LabelValue:
    if isinstance(value, list | tuple | np.ndarray):
        return np.asarray(value)
    if kind == "text":
        return str(value)
    if kind == "number":
        return number_of(value, record, "label")
    if kind == "auto" and not is_number(value) and not _is_digits(value):
        return str(value)
    number = value if is_number(value) else number_of(value, record, "label")
    if kind == "auto" and isinstance(number, float | np.floating) and not _is_digits(value):
        return float(number)
    if (float(number) < 0 and kind == "class") or float(number) != int(number):
        hint = "" if is_number(value) else "name the classes in order with `data.label.classes`"
        raise DataError(f"label {value!r} is no class (0, 1, 2, ...)", where=record.place, hint=hint)
    return int(number)


def _is_digits(value: Any) -> bool:
    return isinstance(value, str) and value.strip().isdecimal()
