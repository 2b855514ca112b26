"""Datasets of the `datasets` library: saved with `save_to_disk`, or a local folder of data files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quant.data.record import Rows
from quant.data.rows.tables import plain
from quant.errors import DataError


def is_saved(path: Path) -> bool:
    """Whether the folder `path` was written by `save_to_disk`."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def read_dataset(path: Path) -> Mapping[str, Rows]:
    """The rows of a stored dataset; its splits keep their names.

    Files inside (pictures, sounds) are left undecoded: processors decode them.

    Raises:
        DataError: The folder is no dataset.
    """
    import datasets  # noqa: PLC0415 - `import quant` stays light

    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        found = datasets.load_from_disk(str(path)) if is_saved(path) else datasets.load_dataset(str(path))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"not a dataset: {str(error).splitlines()[0]}", where=str(path)) from error
    finally:
        if shown:
            datasets.enable_progress_bars()
    if isinstance(found, datasets.Dataset):
        return {"": _rows(found, path.name, path)}
    return {str(name): _rows(split, str(name), path) for name, split in sorted(found.items())}


def _rows(dataset: Any, name: str, folder: Path) -> Rows:
    import datasets  # noqa: PLC0415 - `import quant` stays light

    for column, feature in dataset.features.items():
        if isinstance(feature, datasets.Image | datasets.Audio):
            dataset = dataset.cast_column(column, type(feature)(decode=False))
    columns = tuple(dataset.column_names)
    return Rows(name, columns, len(dataset), lambda i: {column: plain(value, folder) for column, value in dataset[i].items()}, folder)
