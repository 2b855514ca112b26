"""Folders of files: pictures, and class folders of pictures or sounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from quant.data.record import FILE, Blob, Rows
from quant.errors import DataError

IMAGE_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
AUDIO_ENDINGS = frozenset({".wav", ".flac", ".ogg", ".mp3"})
_SPLITS = frozenset({"train", "training", "test", "testing", "validation", "valid", "val", "dev", "eval"})


def read_images(path: Path) -> Rows:
    """The pictures below a folder (or one picture), ordered by name: columns `image` and `file`.

    Raises:
        DataError: There is none.
    """
    if path.is_file():
        return _rows([path], path.parent, "image")
    return _rows(_files(path, IMAGE_ENDINGS), path, "image")


def read_image_classes(path: Path) -> Mapping[str, Rows]:
    """Pictures in class folders: columns `image`, `file` and `label` (the folder's name; classes in the order of names).

    Folders called `train`, `test`, `validation` and the like, at the top, are named splits. An empty folder is a class too, which
    no sample has; what is hidden (`.ipynb_checkpoints`) is not looked at: either way the other classes keep their numbers.

    Raises:
        DataError: There are no pictures, or a picture lies outside the class folders.
    """
    return _read_classes(path, IMAGE_ENDINGS, "image")


def read_audio_classes(path: Path) -> Mapping[str, Rows]:
    """Sounds in class folders, as `read_image_classes`, in the column `audio`; sounds without class folders have no label."""
    if any(file.parent == path for file in _files(path, AUDIO_ENDINGS)):
        return {"": _rows(_files(path, AUDIO_ENDINGS), path, "audio")}
    return _read_classes(path, AUDIO_ENDINGS, "audio")


def _read_classes(path: Path, endings: Collection[str], column: str) -> Mapping[str, Rows]:
    splits = _folders(path)
    if splits and all(split.name.lower() in _SPLITS for split in splits):
        return {split.name: _rows(_files(split, endings), split, column, classes=_classes(split, endings)) for split in splits}
    return {"": _rows(_files(path, endings), path, column, classes=_classes(path, endings))}


def _classes(path: Path, endings: Collection[str]) -> tuple[str, ...]:
    for file in _files(path, endings):
        if file.parent == path:
            raise DataError(f"{file.name!r} lies beside the class folders instead of in one", where=str(path))
    empty = {folder.name for folder in _folders(path) if not any(folder.iterdir())}
    return tuple(sorted({file.relative_to(path).parts[0] for file in _files(path, endings)} | empty))


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def is_hidden(file: Path, folder: Path) -> bool:
    """Whether `file`, or a folder that it lies in below `folder`, has a name that begins with a dot."""
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _files(path: Path, endings: Collection[str]) -> list[Path]:
    found = (file for file in path.rglob("*") if file.suffix.lower() in endings and not is_hidden(file, path) and file.is_file())
    return sorted(found, key=lambda file: file.relative_to(path).as_posix())


def _rows(files: list[Path], folder: Path, column: str, *, classes: tuple[str, ...] | None = None) -> Rows:
    if not files:
        raise DataError(f"no {'pictures' if column == 'image' else 'sounds'} in this folder", where=str(folder))

    def get(index: int) -> dict[str, object]:
        inner = files[index].relative_to(folder)
        label = {"label": inner.parts[0]} if classes else {}
        return {column: Blob(files[index]), FILE: inner.as_posix(), **label}

    names = (column, FILE, "label") if classes else (column, FILE)
    return Rows(folder.name, names, len(files), get, folder, label_column="label" if classes else None, classes=classes)
