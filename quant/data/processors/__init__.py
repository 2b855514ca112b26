"""Processors: each turns a record (a row, a file) into model inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from quant.core.registry import Options, Registry, did_you_mean
from quant.data.record import Record, Rows
from quant.data.samples import Feed
from quant.errors import DataError


@dataclass(frozen=True)
class Setting:
    """What a processor may need to know before it sees a record.

    Args:
        base: Folder of the recipe.
        columns: Columns that the rows have.
        label_column: The column of the label, which is no input; None when there is none.
        model_folder: Folder of a Hugging Face model, or a GGUF file; None when the model is neither.
        trust_code: Whether code named by the recipe may run.
        where: Place of `data.inputs` in the recipe, for messages.
    """

    base: Path
    columns: tuple[str, ...] = ()
    label_column: str | None = None
    model_folder: Path | None = None
    trust_code: bool = False
    where: str = ""

    def need(self, columns: Iterable[str]) -> tuple[str, ...]:
        """`columns`, all of which the rows have.

        Raises:
            DataError: A column is not in the rows; the hint names the nearest.
        """
        wanted = tuple(columns)
        for column in wanted:
            if column not in self.columns:
                raise DataError(f"no column {column!r} in the data", where=self.where, hint=did_you_mean(column, self.columns))
        return wanted


@dataclass(frozen=True)
class Traits:
    """What the rest of the toolkit must know of a processor's feeds.

    Args:
        pad_values: Input -> the number that fills it up when feeds of one batch differ in length; inputs that are not
            here are never padded.
        optional: Inputs that are left out when the model does not take them.
        integers_fit: Integers may become the integer type that the model takes.
        floats_narrow: float64 may become float32.
        label_column: The column that is the label when the recipe names none.
    """

    pad_values: Mapping[str, int | float] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    integers_fit: bool = False
    floats_narrow: bool = False
    label_column: str | None = None

    def may_cast(self, given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
        """Whether an array of type `given` may become `wanted` without being asked."""
        integers = given.kind in "iu" and wanted.kind in "iu"
        return (self.integers_fit and integers) or (self.floats_narrow and given == np.float64 and wanted == np.float32)


class Processor(Protocol):
    """Turns a record into feeds. Made from its options, then opened once, then used for every record."""

    kind: ClassVar[str]
    Options: ClassVar[type[Options]]

    def open(self, setting: Setting) -> None:
        """Check columns and files, and load what is needed.

        Raises:
            DataError: A column or file is missing or cannot be used.
        """
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that inputs are made of."""
        ...

    @property
    def traits(self) -> Traits:
        """What the rest of the toolkit must know of the feeds."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over everything that decides what feeds a record gives."""
        ...

    def feeds(self, record: Record) -> tuple[Feed, ...]:
        """One feed, or several for a pair or a sequence; arrays without the batch axis.

        Raises:
            DataError: The record cannot be made an input; the message names it.
        """
        ...

    def content(self, record: Record) -> bytes:
        """What makes two records the same input, as 32 bytes."""
        ...

    def display(self, record: Record) -> str:
        """A few words that show a person which sample it is."""
        ...


@runtime_checkable
class Fitted(Protocol):
    """A processor that learns numbers (means, say) from the `train` split."""

    @property
    def needs_fit(self) -> bool:
        """Whether `fit` must be called before `feeds`."""
        ...

    def fit(self, records: Iterable[Record]) -> None:
        """Learn from `records`."""
        ...


@runtime_checkable
class Cutting(Protocol):
    """A processor that makes several records of one: windows of a long text, say."""

    def cut(self, rows: Rows) -> Rows:
        """The pieces of all `rows`, in their order; each has the columns of the row that it is from, and those that the processor adds.

        Raises:
            DataError: A row cannot be cut, or there is no piece at all.
        """
        ...


PROCESSORS: Registry[Processor] = Registry("processor", "quant.data.processors")


def shorten(text: str, most: int = 80) -> str:
    r"""`text` on one line of at most `most` characters.

    Example:
        >>> shorten("a  b\nc", 4)
        'a b…'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
