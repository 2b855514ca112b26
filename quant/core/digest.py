"""Content addresses: the same content gives the same digest on every machine and in every run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys and no spare space; floats in their shortest exact form.

    Raises:
        ValueError: A NaN or an infinity, for which JSON has no word.

    Example:
        >>> canonical_json({"b": 1.5, "a": [1, None]})
        '{"a":[1,null],"b":1.5}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of a JSON-like value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_of_arrays(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """SHA-256 (hex) over names, dtypes, shapes and bytes of `arrays`, in the order of their names."""
    running = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        # `str` holds the byte order, `name` tells apart the types that NumPy itself does not know (all `|V1` to it).
        running.update(f"{name}\0{array.dtype.str}\0{array.dtype.name}\0{array.shape}\0".encode())
        if array.dtype.hasobject:  # its bytes are addresses
            running.update(canonical_json(array.tolist()).encode())
        else:
            running.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return running.hexdigest()


def digest_of_file(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes, read in pieces."""
    running = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            running.update(piece)
    return running.hexdigest()


def digest_of_folder(path: Path) -> str:
    """SHA-256 (hex) over the relative names and digests of every file below `path`."""
    files = sorted(p for p in path.rglob("*") if p.is_file())
    return digest_of({p.relative_to(path).as_posix(): digest_of_file(p) for p in files})
