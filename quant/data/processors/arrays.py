"""Arrays as they are: each column is an input of the model."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from quant.core import registry
from quant.core.digest import digest_of
from quant.data.processors import PROCESSORS, Setting, Traits
from quant.data.record import FILE, Record, content_of
from quant.data.samples import Feed
from quant.errors import DataError


@PROCESSORS.add
class Arrays:
    """Columns that hold arrays, numbers or lists of numbers become inputs of the same name.

    float64 becomes float32 where the model takes that; any other change of type must be asked for with `dtypes`.
    """

    kind: ClassVar[str] = "arrays"

    class Options(registry.Options):
        """Which column feeds which input.

        Args:
            inputs: Column -> input; all columns but the label under their own names when not given.
            dtypes: Input -> NumPy type that its values are converted to.
            steps: The first axis of every array counts the steps of a sequence: each step is one feed.
        """

        inputs: dict[str, str] | None = None
        dtypes: dict[str, str] = Field(default_factory=dict)
        steps: bool = False

    def __init__(self, options: Options) -> None:
        self.options = options
        self._inputs: dict[str, str] = dict(options.inputs or {})
        self._dtypes: dict[str, np.dtype[Any]] = {}

    def open(self, setting: Setting) -> None:
        """Settle which column feeds which input."""
        if self.options.inputs is None:
            self._inputs = {column: column for column in setting.columns if column not in {setting.label_column, FILE}}
        setting.need(self._inputs)
        if not self._inputs:
            raise DataError("no column is left to be an input", where=setting.where)
        for name, dtype in self.options.dtypes.items():
            try:
                self._dtypes[name] = np.dtype(dtype)
            except TypeError as error:
                raise DataError(f"no type is called {dtype!r}, for input {name!r}", where=setting.where, hint="float32, int64, int32, bool, ...") from error

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that feed inputs."""
        return tuple(self._inputs)

    @property
    def traits(self) -> Traits:
        """float64 may become float32."""
        return Traits(floats_narrow=True)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the options."""
        return digest_of([self.kind, self.options.model_dump(mode="json"), self._inputs])

    def feeds(self, record: Record) -> tuple[Feed, ...]:
        """The arrays of one record, or one feed for each step."""
        arrays = {name: self._array(record, column, name) for column, name in self._inputs.items()}
        if not self.options.steps:
            return (arrays,)
        lengths = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
        if len(set(lengths.values())) > 1 or 0 in lengths.values():
            raise DataError(f"sequences of different lengths, or empty ones: {lengths}", where=record.place)
        return tuple({name: array[step] for name, array in arrays.items()} for step in range(next(iter(lengths.values()))))

    def _array(self, record: Record, column: str, name: str) -> npt.NDArray[Any]:
        try:
            array = np.asarray(record.value(column))
        except ValueError as error:
            raise DataError(f"{column!r} is a ragged list, which is no array", where=record.place) from error
        if array.dtype.hasobject or array.dtype.kind in "mMV":
            raise DataError(f"{column!r} is no array of numbers: {str(record.value(column))[:60]!r}", where=record.place)
        dtype = self._dtypes.get(name)
        if dtype is None:
            return array
        try:
            return array.astype(dtype)
        except ValueError as error:
            raise DataError(f"{column!r} cannot become {dtype.name}: {error}", where=record.place) from error

    def content(self, record: Record) -> bytes:
        """SHA-256 over the columns."""
        return content_of(record, self.columns)

    def display(self, record: Record) -> str:
        """The shapes of the arrays."""
        return ", ".join(f"{name or 'array'} {list(np.shape(record.value(column)))}" for column, name in self._inputs.items())
