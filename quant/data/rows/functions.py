"""Rows from a function that the recipe names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quant.data.code import load_function
from quant.data.record import ONLY_INPUT, Rows
from quant.errors import DataError
from quant.recipe.schema import RowsSpec

_LABEL = "label"


def read_function(spec: RowsSpec, *, base: Path, trust_code: bool, where: str) -> Mapping[str, Rows]:
    """The rows that `module:function(**arguments)` returns.

    It returns a sequence (kept as it is, so items may be made when asked for) or an iterable of items, or a mapping
    of named splits to such. An item is a mapping (column -> value) or a pair of one and its label. A mapping of
    arrays is a table: the first axis of each counts the rows.

    Raises:
        DataError: The code is not trusted, does not exist, or returns something else.
    """
    function = load_function(spec.source, base=base, trust_code=trust_code, where=where)
    found = function(**spec.arguments)
    if isinstance(found, Mapping) and found and all(isinstance(value, np.ndarray) for value in found.values()):
        return {"": _from_arrays(found, spec.source, base, where)}
    if isinstance(found, Mapping):
        return {str(name): _from_items(items, f"{spec.source} {name}", base, where) for name, items in found.items()}
    return {"": _from_items(found, spec.source, base, where)}


def _from_arrays(arrays: Mapping[str, Any], name: str, base: Path, where: str) -> Rows:
    counts = {column: len(array) for column, array in arrays.items()}
    if len(set(counts.values())) > 1:
        raise DataError(f"{name} returned arrays of different numbers of rows: {counts}", where=where)
    return Rows(name, tuple(arrays), next(iter(counts.values())), lambda i: {column: array[i] for column, array in arrays.items()}, base)


def _from_items(items: object, name: str, base: Path, where: str) -> Rows:
    if not isinstance(items, Iterable) and not (hasattr(items, "__getitem__") and hasattr(items, "__len__")):
        raise DataError(
            f"{name} returned a {type(items).__name__} instead of rows", where=where, hint="return a sequence of mappings, or of (mapping, label) pairs"
        )
    lazy = hasattr(items, "__getitem__") and hasattr(items, "__len__")
    kept: Any = items if lazy else list(items)  # type: ignore[call-overload]  # an iterable, by the check above
    if not len(kept):
        return Rows(name, (), 0, lambda _i: {}, base)
    columns = tuple(_values(kept[0], f"{name} row 0"))
    label = _LABEL if _is_pair(kept[0]) else None
    return Rows(name, columns, len(kept), lambda i: _values(kept[i], f"{name} row {i}"), base, label_column=label)


def _is_pair(item: object) -> bool:
    return isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item) == 2  # noqa: PLR2004 - (inputs, label)


def _values(item: Any, place: str) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    if not _is_pair(item):
        raise DataError(f"is a {type(item).__name__} instead of a mapping or an (inputs, label) pair", where=place)
    inputs = item[0] if isinstance(item[0], Mapping) else {ONLY_INPUT: item[0]}
    if _LABEL in inputs:
        raise DataError(f"has a label of its own beside an input called {_LABEL!r}", where=place)
    return {**inputs, _LABEL: item[1]}
