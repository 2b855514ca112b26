"""Slices: the parts of the evaluation samples that a metric is also taken over, by label, by a column, or by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from quant.data.conditions import value_key
from quant.data.record import is_missing, is_number
from quant.data.samples import Samples
from quant.errors import DataError
from quant.recipe.schema import SliceSpec

Members = npt.NDArray[np.bool_]

_MOST_VALUES = 20
"""Numbers of more values than this are cut into quantiles."""
_MOST_SLICES = 200


@runtime_checkable
class HasColumns(Protocol):
    """Samples that come from a table, or from files."""

    def column(self, name: str) -> list[Any]:
        """Each sample's value of a column."""
        ...


def sliced(samples: Samples, spec: SliceSpec) -> dict[str, Members]:
    """Name of each part -> `[samples]`, whether a sample is in it; a sample without a value is in none.

    Raises:
        DataError: There is no such column, no sample has a value, all have the same, or there are too many values.
    """
    values = _values(samples, spec)
    known = [value for value in values if not is_missing(value)]
    keys = {value_key(value) for value in known}
    if len(keys) < 2:  # noqa: PLR2004 - one part is the whole
        raise DataError(f"slices by {spec.title}: all {len(values)} evaluation samples have the same value", hint="take it out of evaluation.slices")
    numeric = all(is_number(value) for value in known)
    if numeric and (spec.by == "length" or len(keys) > _MOST_VALUES) and len(keys) > spec.bins:
        return _quantiles(np.array([np.nan if is_missing(value) else float(value) for value in values]), spec)
    if len(keys) > _MOST_SLICES:
        what = f"slices by {spec.title}: {len(keys)} different values in {len(values)} evaluation samples"
        raise DataError(what, hint=f"name a column with at most {_MOST_SLICES} values")
    found = {}
    for key in sorted(keys, key=lambda k: (isinstance(k, str), k)):
        members = np.array([not is_missing(value) and value_key(value) == key for value in values])
        found[f"{spec.title} {_said(key)}"] = members
    return found


def _values(samples: Samples, spec: SliceSpec) -> Sequence[Any]:
    if spec.by == "length":
        return [sum(array.size for feed in sample.feeds for array in feed.values()) for sample in samples]
    if spec.by == "label":
        entries = getattr(samples, "entries", None)  # these have labels without a need to make any sample
        labels = [sample.label for sample in (samples if entries is None else entries)]
        if any(isinstance(label, np.ndarray) and label.size != 1 for label in labels):
            raise DataError("slices by label: a sample has several labels", hint="slices by label are for data with one label a sample")
        return [label.reshape(-1)[0] if isinstance(label, np.ndarray) else label for label in labels]
    assert spec.column is not None, "checked by the schema"
    if not isinstance(samples, HasColumns):
        raise DataError(f"slices by {spec.column}: these data have no columns", hint="slices by label and by length need none")
    return samples.column(spec.column)


def _quantiles(values: npt.NDArray[np.float64], spec: SliceSpec) -> dict[str, Members]:
    """Parts of about as many samples; equal values are never parted."""
    inner = np.unique(np.nanquantile(values, np.arange(1, spec.bins) / spec.bins, method="inverted_cdf"))
    inner = inner[inner < np.nanmax(values)]
    ends = [*inner, np.nanmax(values)]
    found: dict[str, Members] = {}
    start = -np.inf
    for end in ends:
        members = (values > start) & (values <= end)
        found[f"{spec.title} {_said(float(values[members].min()))} to {_said(float(end))}"] = members
        start = end
    return found


def _said(key: float | str) -> str:
    return f"{key:g}" if isinstance(key, float) else key


def gated(parts: Mapping[str, Mapping[str, Members]]) -> dict[str, Members]:
    """Name -> members of all parts of all slices."""
    return {name: members for slices in parts.values() for name, members in slices.items()}
