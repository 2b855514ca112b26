"""Inputs for a bare ONNX graph: from an array file, or drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.signature import TensorSpec
from quant.data.adapt import numpy_dtype
from quant.data.record import ONLY_INPUT
from quant.data.rows.arrays import load_arrays
from quant.errors import DataError
from quant.graph.model import constant, signature

Array = npt.NDArray[Any]

BATCH = 8
"""Rows that go in together, where the model leaves that open."""
_LENGTH = 16
"""Length of a dimension that the model leaves open, but for that of the batch."""


def inputs_from_file(path: Path, model: ir.Model, *, most: int) -> list[dict[str, Array]]:
    """The first `most` rows of the arrays in an `.npz` (or of the only input, in an `.npy`), cut into batches as the model takes them.

    Raises:
        DataError: An array is missing, one is no input, or a type or shape does not fit.
    """
    specs = signature(model).inputs
    arrays = dict(load_arrays(path))
    if set(arrays) == {ONLY_INPUT} and len(specs) == 1:
        arrays = {specs[0].name: arrays[ONLY_INPUT]}
    names = {spec.name for spec in specs}
    if missing := sorted(names - set(arrays)):
        raise DataError(f"no array for input {missing[0]!r}", where=str(path), hint=f"it has: {', '.join(sorted(arrays)) or 'nothing'}")
    if surplus := sorted(set(arrays) - names):
        raise DataError(f"array {surplus[0]!r} is no input of the model", where=str(path), hint=f"its inputs are: {', '.join(map(str, specs))}")
    fitted = {spec.name: _fitted(arrays[spec.name], spec, str(path)) for spec in specs}
    return _batches(fitted, specs, most, str(path))


def _fitted(array: Array, spec: TensorSpec, where: str) -> Array:
    dtype = numpy_dtype(spec.dtype)
    if dtype is None or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise DataError(f"array {spec.name!r} is {array.dtype}, the model's input is {spec}", where=where)
    lengths = spec.shape or ()
    if spec.shape is not None and (array.ndim != len(lengths) or any(isinstance(d, int) and d != n for d, n in zip(lengths[1:], array.shape[1:], strict=True))):
        raise DataError(f"array {spec.name!r} has shape {list(array.shape)}, the model's input is {spec}", where=where)
    return array.astype(dtype)


def _batches(arrays: Mapping[str, Array], specs: Sequence[TensorSpec], most: int, where: str) -> list[dict[str, Array]]:
    """Cut along the first axis, if that is as long for every array; else all go in at once."""
    lengths = {len(array) for array in arrays.values() if array.ndim}
    fixed = {spec.shape[0] for spec in specs if spec.shape and isinstance(spec.shape[0], int)}
    if len(lengths) != 1 or len(fixed) > 1 or any(array.ndim == 0 for array in arrays.values()):
        return [dict(arrays)]
    rows, size = lengths.pop(), next(iter(fixed), BATCH)
    if rows == 0 or (fixed and rows % size):
        raise DataError(f"{rows} rows cannot be cut into batches of {size}, which the model is fixed to", where=where)
    rows = min(rows, -(-most // size) * size if fixed else most)
    return [{name: array[start : min(start + size, rows)] for name, array in arrays.items()} for start in range(0, rows, size)]


def cut(feeds: Sequence[Mapping[str, Array]], model: ir.Model) -> list[dict[str, Array]]:
    """Batches that were made for another model, as `model` takes them, whose batch may be fixed.

    Raises:
        DataError: They cannot be cut so.
    """
    specs = signature(model).inputs
    if len({spec.shape[0] for spec in specs if spec.shape and isinstance(spec.shape[0], int)}) != 1:
        return [dict(feed) for feed in feeds]
    return [part for feed in feeds for part in _batches(feed, specs, max(len(array) for array in feed.values() if array.ndim), "the samples")]


def random_inputs(model: ir.Model, *, rows: int, seed: int = 0) -> list[dict[str, Array]]:
    """Random inputs of the shapes and types that the model declares.

    Floats are normal; integers that only choose rows of a table are any of its rows, all others 0 or 1, which ids and masks
    may always be. The first axis is the batch where it is open; other open dimensions are 16 long.

    Raises:
        DataError: The shape or the type of an input does not say what to draw.
    """
    random = np.random.default_rng(seed)
    specs = signature(model).inputs
    fixed = {spec.shape[0] for spec in specs if spec.shape and isinstance(spec.shape[0], int)}
    size = max(1, next(iter(fixed), BATCH)) if specs else 1
    tables = {str(value.name): _rows_of_table(value) for value in model.graph.inputs}
    return [{spec.name: _drawn(spec, random, tables.get(spec.name), size) for spec in specs} for _ in range(max(1, -(-rows // size)))]


def _drawn(spec: TensorSpec, random: np.random.Generator, table: int | None, batch: int) -> Array:
    dtype = numpy_dtype(spec.dtype)
    if dtype is None or spec.shape is None or dtype.kind not in "fiub":
        raise DataError(f"nothing can be drawn for the input {spec}", hint="give inputs with --inputs FILE.npz")
    shape = [d if isinstance(d, int) else batch if axis == 0 else _LENGTH for axis, d in enumerate(spec.shape)]
    if dtype.kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(0, table or 2, shape).astype(dtype)


def _rows_of_table(value: ir.Value) -> int | None:
    """Number of rows of the table that `value` chooses from, if that is all it does; of the smallest, if there are several."""
    rows = []
    for node, position in value.uses():
        table = constant(node.inputs[0]) if node.op_type == "Gather" and position == 1 else None
        if table is None:
            return None
        rows.append(len(table))
    return min(rows, default=None)


def fitting(feed: Mapping[str, Array], model: ir.Model) -> dict[str, Array]:
    """`feed` as `model` takes it, whose float inputs may be wider or narrower.

    Raises:
        DataError: An input is missing, or is of another kind.
    """
    found = {}
    for spec in signature(model).inputs:
        dtype = numpy_dtype(spec.dtype)
        if spec.name not in feed:
            raise DataError(f"there is nothing for the input {spec}", hint=f"the inputs have: {', '.join(sorted(feed))}")
        if dtype is None or feed[spec.name].dtype.kind != dtype.kind:
            raise DataError(f"the input {spec} cannot be given {feed[spec.name].dtype}")
        found[spec.name] = feed[spec.name].astype(dtype, copy=False)
    return found
