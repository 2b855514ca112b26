"""Tables of numbers and categories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from quant.core import registry
from quant.core.digest import digest_of
from quant.core.registry import did_you_mean
from quant.data.conditions import number_of, value_key
from quant.data.processors import PROCESSORS, Setting, Traits, shorten
from quant.data.record import FILE, ONLY_INPUT, Record, content_of, is_missing
from quant.data.samples import Feed
from quant.errors import DataError

Floats = npt.NDArray[np.float64]


@PROCESSORS.add
class Tabular:
    """Numeric columns, scaled, and categories as one-hot or positions; together one float32 vector, or one input each.

    Scaled value = (value - shift) / factor. `standard` takes mean and standard deviation (over all rows, not rows - 1) of the
    train split, `minmax` its minimum and extent; a constant column has factor 1.
    """

    kind: ClassVar[str] = "tabular"

    class Options(registry.Options):
        """Which columns, and how they become numbers.

        Args:
            columns: Numeric columns, in order; all that are neither categories nor the label when not given.
            categories: Column -> its values, in order.
            encoding: `onehot`, or `index` (the position; int64 where each column is an input).
            scaling: How numeric columns are scaled.
            shift: Column -> what is subtracted, instead of learning it. Needs `factor`.
            factor: Column -> what is divided by.
            missing: `error`, or a number that takes the place of a missing one before scaling.
            unknown: What a value outside the categories is: an `error`, or `zeros` (one-hot only).
            form: One `vector`, or `columns`: one input `[1]` for each column.
            input: Name of the vector's input; the model's only one when not given.
        """

        columns: tuple[str, ...] | None = None
        categories: dict[str, tuple[str | int | float, ...]] = Field(default_factory=dict)
        encoding: Literal["onehot", "index"] = "onehot"
        scaling: Literal["none", "standard", "minmax"] = "none"
        shift: dict[str, float] | None = None
        factor: dict[str, float] | None = None
        missing: Literal["error"] | float = "error"
        unknown: Literal["error", "zeros"] = "error"
        form: Literal["vector", "columns"] = "vector"
        input: str | None = None

    def __init__(self, options: Options) -> None:
        self.options = options
        self._numeric: tuple[str, ...] = options.columns or ()
        self._known = {column: {value_key(v): i for i, v in enumerate(values)} for column, values in options.categories.items()}
        self._shift: dict[str, float] = dict(options.shift or {})
        self._factor: dict[str, float] = dict(options.factor or {})
        self._fitted = options.scaling == "none" or options.shift is not None

    def open(self, setting: Setting) -> None:
        """Settle the columns."""
        if self.options.columns is None:
            self._numeric = tuple(c for c in setting.columns if c not in {setting.label_column, FILE, *self._known})
        setting.need(self.columns)
        if not self.columns:
            raise DataError("no column is left to be an input", where=setting.where)
        if self.options.unknown == "zeros" and self.options.encoding == "index":
            raise DataError("`unknown: zeros` has no meaning for `encoding: index`", where=setting.where)
        if (self.options.shift is None) != (self.options.factor is None):
            raise DataError("`shift` and `factor` go together", where=setting.where)
        if self.options.shift is not None:
            for column in self._numeric:
                if column not in self._shift or not self._factor.get(column):
                    raise DataError(f"column {column!r} has no shift, or no factor other than 0", where=setting.where)

    @property
    def columns(self) -> tuple[str, ...]:
        """Numeric columns, then categories."""
        return (*self._numeric, *self._known)

    @property
    def traits(self) -> Traits:
        """Positions of categories fit any integer type."""
        return Traits(integers_fit=True)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over options, columns and learned numbers."""
        return digest_of([self.kind, self.options.model_dump(mode="json"), self._numeric, self._shift, self._factor])

    @property
    def needs_fit(self) -> bool:
        """Whether scaling must be learned."""
        return not self._fitted

    def fit(self, records: Iterable[Record]) -> None:
        """Learn shift and factor of each numeric column."""
        table = np.asarray([[self._number(record, column) for column in self._numeric] for record in records], np.float64)
        if self.options.scaling == "standard":
            shift, factor = table.mean(axis=0), table.std(axis=0)
        else:
            shift, factor = table.min(axis=0), np.ptp(table, axis=0)
        factor = np.where(factor > 0, factor, 1.0)
        self._shift = dict(zip(self._numeric, shift.tolist(), strict=True))
        self._factor = dict(zip(self._numeric, factor.tolist(), strict=True))
        self._fitted = True

    def feeds(self, record: Record) -> tuple[Feed, ...]:
        """One float32 vector, or one array a column."""
        if self.options.form == "columns":
            whole = np.int64 if self.options.encoding == "index" else np.float32
            numbers = {column: np.asarray([self._scaled(record, column)], np.float32) for column in self._numeric}
            return ({**numbers, **{column: self._category(record, column).astype(whole) for column in self._known}},)
        parts = [np.asarray([self._scaled(record, column) for column in self._numeric]), *(self._category(record, column) for column in self._known)]
        return ({self.options.input or ONLY_INPUT: np.concatenate(parts).astype(np.float32)},)

    def _number(self, record: Record, column: str) -> float:
        value = record.value(column)
        if is_missing(value):
            if self.options.missing == "error":
                hint = "leave such rows out with `data.where`, or give a number that takes their place with `missing`"
                raise DataError(f"column {column!r} is empty", where=record.place, hint=hint)
            return float(self.options.missing)
        return number_of(value, record, column)

    def _scaled(self, record: Record, column: str) -> float:
        return (self._number(record, column) - self._shift.get(column, 0.0)) / self._factor.get(column, 1.0)

    def _category(self, record: Record, column: str) -> Floats:
        value, known = record.value(column), self._known[column]
        position = known.get(value_key(value)) if not is_missing(value) else None
        if position is None and self.options.unknown == "error":
            raise DataError(f"{column!r} is {value!r}: not among its categories", where=record.place, hint=did_you_mean(str(value), [str(k) for k in known]))
        if self.options.encoding == "index":
            return np.asarray([position], np.float64)
        return np.eye(len(known))[position] if position is not None else np.zeros(len(known))

    def content(self, record: Record) -> bytes:
        """SHA-256 over the columns."""
        return content_of(record, self.columns)

    def display(self, record: Record) -> str:
        """The columns, shortened."""
        return shorten(", ".join(f"{column} {_shown(record.value(column))}" for column in self.columns))


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
