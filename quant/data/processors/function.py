"""A function of the user's that makes inputs of a record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from quant.core import registry
from quant.core.digest import digest_of, digest_of_file
from quant.data.code import load_function
from quant.data.processors import PROCESSORS, Setting, Traits, shorten
from quant.data.record import FILE, Blob, Record, content_of
from quant.data.samples import Feed
from quant.errors import DataError


@PROCESSORS.add
class Function:
    """Calls `function(values, **arguments)` with the columns of a record; it returns one feed (input -> array) or a list of them.

    Files among the values are handed over as bytes. The code runs only with `--trust-code`.
    """

    kind: ClassVar[str] = "function"

    class Options(registry.Options):
        """Which function, and what it gets.

        Args:
            function: `module:function`, or `file.py:function`.
            columns: The columns that make a record the input it is; all but the label when not given.
            arguments: Keyword arguments.
        """

        function: str
        columns: tuple[str, ...] | None = None
        arguments: dict[str, Any] = Field(default_factory=dict)

    def __init__(self, options: Options) -> None:
        self.options = options
        self._columns: tuple[str, ...] = options.columns or ()
        self._function: Callable[..., Any] = _unopened
        self._source = ""

    def open(self, setting: Setting) -> None:
        """Load the function, if it may run."""
        self._function = load_function(self.options.function, base=setting.base, trust_code=setting.trust_code, where=setting.where)
        if self.options.columns is None:
            self._columns = tuple(column for column in setting.columns if column not in {setting.label_column, FILE})
        setting.need(self._columns)
        file = inspect.getsourcefile(self._function)
        self._source = digest_of_file(Path(file)) if file else ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the function gets."""
        return self._columns

    @property
    def traits(self) -> Traits:
        """float64 may become float32."""
        return Traits(floats_narrow=True)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the options and the file that holds the function."""
        return digest_of([self.kind, self.options.model_dump(mode="json"), self._source, self._columns])

    def feeds(self, record: Record) -> tuple[Feed, ...]:
        """What the function returns."""
        values = {column: value.read() if isinstance(value := record.value(column), Blob) else value for column in self._columns}
        found = self._function(values, **self.options.arguments)
        made = [found] if isinstance(found, Mapping) else found
        if not isinstance(made, Sequence) or not made or not all(isinstance(feed, Mapping) for feed in made):
            hint = "return a mapping of input names to arrays, or a list of such mappings"
            raise DataError(f"{self.options.function} returned a {type(found).__name__}", where=record.place, hint=hint)
        return tuple({str(name): np.asarray(array) for name, array in feed.items()} for feed in made)

    def content(self, record: Record) -> bytes:
        """SHA-256 over the columns."""
        return content_of(record, self._columns)

    def display(self, record: Record) -> str:
        """The columns, shortened."""
        return shorten(", ".join(f"{column}: {record.value(column)}" for column in self._columns))


def _unopened(*_args: object, **_arguments: object) -> Any:
    raise AssertionError("open() was not called")
