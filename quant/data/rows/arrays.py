"""Arrays: `.npy` and `.npz` files, or a folder with one such file for each sample (then shapes may differ)."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.data.record import FILE, ONLY_INPUT, Rows
from quant.errors import DataError
from quant.recipe.schema import RowsSpec

Arrays = Mapping[str, npt.NDArray[Any]]
_MADE_BY = "write it with np.save or np.savez"


def read_arrays(path: Path, spec: RowsSpec) -> Rows:
    """The samples along the first axis of each array; the array of an `.npy` goes into the model's only input.

    In a folder each file is one whole sample. Pickled objects are never loaded.

    Raises:
        DataError: The arrays differ in their number of samples, hold pickled objects, or cannot be read.
    """
    if path.is_dir():
        return _read_folder(path, spec)
    arrays = load_arrays(path)
    for name, array in arrays.items():
        if array.ndim == 0:
            raise DataError(f"array {name!r} has no axis of samples", where=str(path))
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        raise DataError(f"arrays of different numbers of samples: {counts}", where=str(path), hint="the first axis of each array counts the samples")
    count = next(iter(counts.values()), 0)
    return Rows(path.name, tuple(arrays), count, lambda i: {name: array[i] for name, array in arrays.items()}, path.parent)


def load_arrays(path: Path) -> Arrays:
    """The arrays of an `.npz` by name, or that of an `.npy` (mapped into memory) under `ONLY_INPUT`.

    Raises:
        DataError: No such file, or it holds pickled objects, or is neither.
    """
    if not path.is_file():
        raise DataError("is a folder, not an array file" if path.is_dir() else "no such array file", where=str(path), hint="give an .npz or .npy file")
    try:
        if path.suffix.lower() == ".npy":
            return {ONLY_INPUT: np.load(path, mmap_mode="r", allow_pickle=False)}
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:  # NumPy leaves a file open that is no archive
            return {name: stored[name] for name in stored.files}
    except ValueError as error:
        if not _is_array_file(path):  # NumPy takes whatever it does not know for a pickle
            raise DataError("not an array file", where=str(path), hint=_MADE_BY) from error
        if "allow_pickle" in str(error) or "Python objects" in str(error) or "pickle" in str(error):
            hint = "arrays of different shapes: write one .npy or .npz file for each sample into a folder"
            raise DataError("holds pickled Python objects, which are never loaded", where=str(path), hint=hint) from error
        raise DataError(f"damaged: {str(error).splitlines()[0]}", where=str(path), hint=_MADE_BY) from error
    except (OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise DataError(f"not an array file: {str(error).splitlines()[0]}", where=str(path), hint=_MADE_BY) from error


def _is_array_file(path: Path) -> bool:
    """Whether it begins like what NumPy writes, or like a pickle."""
    with path.open("rb") as file:
        return file.read(6).startswith((b"\x93NUMPY", b"PK", b"\x80"))


def _read_folder(path: Path, spec: RowsSpec) -> Rows:
    endings = {f".{spec.kind}"} if spec.kind in {"npz", "npy"} else {".npz", ".npy"}
    files = sorted((file for file in path.rglob("*") if file.suffix in endings), key=lambda file: file.relative_to(path).as_posix())
    if not files:
        raise DataError("no array files in this folder", where=str(path))
    names = tuple(load_arrays(files[0]))

    def get(index: int) -> dict[str, Any]:
        return {**load_arrays(files[index]), FILE: files[index].relative_to(path).as_posix()}

    return Rows(path.name, (*names, FILE), len(files), get, path)
