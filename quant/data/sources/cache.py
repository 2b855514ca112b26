"""The cache of fetched things: by content, each whole or not at all, and looked at again before each use.

```text
sources/contents/<digest>/<name>       files and folders that were handed out
sources/downloads/<digest>/<name>      archives as they were downloaded
sources/known/<digest of a key>.json   what was found for a source
```

Any number of processes may use it at once: entries are named by their content, and appear by one rename.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quant.core.cache_folder import cache_folder
from quant.core.digest import digest_of, digest_of_file, digest_of_folder
from quant.core.files import disk_errors, write_text


class Cache:
    """The part of the user's cache that holds sources.

    Args:
        root: Its folder; inside the user's cache when not given.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or cache_folder() / "sources"

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """An empty folder on the cache's disk, removed afterwards."""
        with disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=self.root))
        try:
            with disk_errors(self.root):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, path: Path, digest: str, *, kind: str) -> Path:
        """Move `path` (of this `digest`) from a scratch folder to its place among the `kind`, and give that place.

        Another process may have been first: its entry, of the same content, is then the one that stays.
        """
        place = self.root / kind / digest / path.name
        if intact(place, digest):
            return place
        with disk_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():  # spoilt: moved away in one step, so that nobody sees half of it
                with self.scratch() as away:
                    place.replace(away / place.name)
            try:
                path.replace(place)
            except OSError:
                if not intact(place, digest):
                    raise
        return place

    def find(self, digest: str, name: str, *, kind: str) -> Path | None:
        """The entry of this digest and name among the `kind`; None when it is missing or spoilt."""
        place = self.root / kind / digest / name
        return place if intact(place, digest) else None

    def known(self, key: Any) -> dict[str, Any]:
        """What was found for `key`; empty when nothing is known."""
        try:
            found = json.loads(self._note(key).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def note(self, key: Any, found: dict[str, Any]) -> None:
        """Remember what was found for `key`."""
        write_text(self._note(key), json.dumps({"key": key, **found}, indent=1, sort_keys=True) + "\n")

    def _note(self, key: Any) -> Path:
        return self.root / "known" / f"{digest_of(key)}.json"


def digest_at(path: Path) -> str:
    """SHA-256 (hex) of the file or folder at `path`."""
    return digest_of_folder(path) if path.is_dir() else digest_of_file(path)


def intact(path: Path, digest: str) -> bool:
    """Whether there is something at `path` and its SHA-256 is `digest`."""
    return path.exists() and digest_at(path) == digest
