"""Results of stages, stored under the digest of everything that they depend on.

A result is a folder that appears whole or not at all. What it depends on is written beside it (`key.json`), so that a person can
see why it was, or was not, found. The toolkit's own code and the libraries that compute results are part of every key. What a
killed process had begun is removed by the next one that works on the same stage. A result whose files are no longer what was
written (a disk that failed, a machine that lost power, a hand) is made again: their SHA-256 are beside it too.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from quant.core.digest import digest_of, digest_of_file
from quant.core.files import disk_errors, make_folder
from quant.engine.lock import part_folder, remove_left_parts

KEY_FILE = "key.json"

LIBRARIES = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "openvino", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "pillow")
"""Libraries whose version can change a result."""


@cache
def library_versions() -> dict[str, str]:
    """Name -> version of every library in `LIBRARIES` that is installed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@cache
def code_digest() -> str:
    """SHA-256 over every source file of the toolkit."""
    top = Path(__file__).resolve().parents[2]
    files = sorted(p for package in ("quant", "calibrators", "evaluators", "recipes") for p in (top / package).rglob("*.py"))
    return digest_of({p.relative_to(top).as_posix(): digest_of_file(p) for p in files})


class StageCache:
    """Stage results below one folder.

    Args:
        root: Where they are kept.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sound: set[Path] = set()
        self.seconds: dict[str, float] = {}
        """Stage -> seconds it took in this process; 0.0 when its result was there already."""

    def stage(self, name: str, key: Mapping[str, Any], produce: Callable[[Path], None]) -> Path:
        """The folder with the result of stage `name` for `key`; `produce` fills it if it is not there yet.

        Args:
            name: The stage; candidates add their own part behind a colon (`apply:int8`).
            key: Everything that the result depends on, besides code and libraries.
            produce: Writes the result into the (empty) folder it is given.
        """
        whole = self._whole(name, key)
        place = self._root / name.split(":", 1)[0] / digest_of(whole)
        if self._is_sound(place):
            self.seconds.setdefault(name, 0.0)
            return place
        start = time.monotonic()
        with disk_errors(place):
            make_folder(place.parent)
            remove_left_parts(place.parent)
            with part_folder(place.parent, place.name[:12]) as part:
                produce(part)
                (part / KEY_FILE).write_text(json.dumps({**whole, "files": _files(part)}, indent=1, sort_keys=True), encoding="utf-8")
                self._put(part, place)
        self._sound.add(place)
        self.seconds[name] = time.monotonic() - start
        return place

    def scratch(self, name: str, key: Mapping[str, Any]) -> Path:
        """A folder for what a stage writes on its way, which outlives a killed process; who asks for it removes it when the stage is done."""
        return self._root / "unfinished" / digest_of(self._whole(name, key))

    @staticmethod
    def _whole(name: str, key: Mapping[str, Any]) -> dict[str, Any]:
        return {"stage": name, "key": dict(key), "code": code_digest(), "libraries": library_versions()}

    def _is_sound(self, place: Path) -> bool:
        """Whether a result is there, and is what was written; read once in a process. One that is damaged goes."""
        if place in self._sound:
            return True
        if not place.is_dir():
            return False
        seen = place.stat().st_ino
        try:
            key = json.loads((place / KEY_FILE).read_bytes())
            sound = isinstance(key, dict) and key.get("files") == _files(place)
        except (OSError, ValueError):  # the file that says so is damaged itself
            sound = False
        if sound:
            self._sound.add(place)
            with suppress(OSError):  # when it was last used, for who makes room; a cache that is only read does without
                (place / KEY_FILE).touch()
        else:
            _discard(place, seen)
        return sound

    @staticmethod
    def _put(part: Path, place: Path) -> None:
        """Move the finished folder into place; another process may have been faster, with the same result."""
        part.chmod(0o755)
        try:
            os.rename(part, place)  # noqa: PTH104 - a rename that must not replace
        except OSError:
            if not place.is_dir():
                raise


def _files(folder: Path) -> dict[str, str]:
    """Path below `folder` -> SHA-256 of every file of a result."""
    return {p.relative_to(folder).as_posix(): digest_of_file(p) for p in sorted(folder.rglob("*")) if p.is_file() and p != folder / KEY_FILE}


def _discard(place: Path, seen: int) -> None:
    """Take the damaged folder with the inode `seen` out of the way in one step, and remove it; another process may have put a sound one there."""
    with disk_errors(place), part_folder(place.parent, place.name[:12]) as old, suppress(FileNotFoundError):
        if place.stat().st_ino == seen:
            place.rename(old / place.name)
