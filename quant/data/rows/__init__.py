"""Forms of data: how rows are read from tables, folders, arrays, datasets and functions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quant.data.record import Rows
from quant.data.rows import arrays, folders, stored, tables
from quant.errors import DataError
from quant.recipe.schema import RowsSpec

ALL = ""
"""Name of the only split of a source that names none."""

_TABLES = {
    "csv": tables.read_csv,
    "tsv": tables.read_csv,
    "json": tables.read_json,
    "parquet": tables.read_parquet,
    "arrow": tables.read_arrow,
    "text": tables.read_text,
    "npz": arrays.read_arrays,
    "npy": arrays.read_arrays,
}
_DETAILS = dict.fromkeys(("csv", "tsv", "text"), ("columns", "skip_rows", "encoding")) | {"json": ("skip_rows", "encoding")}
"""What of a recipe's details the reader of a kind reads; the readers of the others read none."""
_FOLDERS = {"imagefolder": folders.read_image_classes, "audiofolder": folders.read_audio_classes, "dataset": stored.read_dataset}
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "text",
    ".npz": "npz",
    ".npy": "npy",
}


def read_rows(spec: RowsSpec, path: Path, *, where: str) -> Mapping[str, Rows]:
    """The rows of the file or folder `path`: named split -> rows; under the name `""` when the source names none.

    Args:
        spec: Form (`kind`) and details of the data.
        path: A file or folder that exists.
        where: Place in the recipe, for messages.

    Raises:
        DataError: The form cannot be told, or the data cannot be read in it.
    """
    kind = kind_of(path, where=where) if spec.kind == "auto" else spec.kind
    _refuse_unread(spec, kind, where)
    if kind in _FOLDERS:
        if not path.is_dir():
            raise DataError(f"data of kind {kind!r} is a folder; {path.name!r} is a file", where=where)
        return _FOLDERS[kind](path)
    if kind == "images":
        return {ALL: folders.read_images(path)}
    if path.is_dir() and kind not in {"npz", "npy"}:
        raise DataError(f"data of kind {kind!r} is a file; {path.name!r} is a folder", where=where, hint="name the file with `data.file`")
    return {ALL: _TABLES[kind](path, spec)}


def _refuse_unread(spec: RowsSpec, kind: str, where: str) -> None:
    """Refuse what the recipe says and data of this kind have no use for: ignored in silence, it would look obeyed."""
    for name in ("columns", "skip_rows", "encoding"):
        value = getattr(spec, name)
        if name not in _DETAILS.get(kind, ()) and value != RowsSpec.model_fields[name].default:
            shown = list(value) if isinstance(value, tuple) else value
            raise DataError(f"data of kind {kind!r} have no `{name}`, got {shown!r}", where=where, hint=f"leave `{name}` out, or name another `kind`")


def kind_of(path: Path, *, where: str) -> str:
    """The form of `path`, by its ending, or by what lies in the folder.

    Example:
        >>> kind_of(Path("train.csv.gz"), where="")
        'csv'

    Raises:
        DataError: Neither tells the form.
    """
    if path.is_dir():
        kind = _folder_kind(path)
        seen = f"folder {path.name!r}"
    else:
        endings = [ending.lower() for ending in path.suffixes]
        last = endings[-2] if len(endings) > 1 and endings[-1] == ".gz" else endings[-1] if endings else ""
        kind = _ENDINGS.get(last, "images" if last in folders.IMAGE_ENDINGS else None)
        seen = f"file {path.name!r}"
    if kind is None:
        raise DataError(f"cannot tell the form of the {seen}", where=where, hint="say it with `data.kind` (csv, json, images, npz, ...)")
    return kind


def _folder_kind(path: Path) -> str | None:
    if stored.is_saved(path):
        return "dataset"
    files = sorted(file for file in path.rglob("*") if file.is_file() and not folders.is_hidden(file, path))
    for endings, flat, classes in ((folders.IMAGE_ENDINGS, "images", "imagefolder"), (folders.AUDIO_ENDINGS, "audiofolder", "audiofolder")):
        found = [file for file in files if file.suffix.lower() in endings]
        if found:
            return classes if all(file.parent != path for file in found) else flat
    for ending in (".npz", ".npy"):
        if any(file.suffix == ending for file in files):
            return ending[1:]
    return "dataset" if any(_ENDINGS.get(file.suffix) in {"csv", "json", "parquet", "arrow", "text"} for file in files) else None
