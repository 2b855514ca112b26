"""Results of stages, stored under the digest of everything that they depend on.

A result is a folder that appears whole or not at all. What it depends on is written beside it (`key.json`), so that a person can
see why it was, or was not, found. The toolkit's own code and the libraries that compute results are part of every key. What a
killed process had begun is removed by the next one that works on the same stage.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from quant.core.digest import digest_of, digest_of_file
from quant.core.files import disk_errors, make_folder
from quant.engine.lock import part_folder, remove_left_parts

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
        self.seconds: dict[str, float] = {}
        """Stage -> seconds it took in this process; 0.0 when its result was there already."""

    def stage(self, name: str, key: Mapping[str, Any], produce: Callable[[Path], None]) -> Path:
        """The folder with the result of stage `name` for `key`; `produce` fills it if it is not there yet.

        Args:
            name: The stage; candidates add their own part behind a colon (`apply:int8`).
            key: Everything that the result depends on, besides code and libraries.
            produce: Writes the result into the (empty) folder it is given.
        """
        whole = {"stage": name, "key": dict(key), "code": code_digest(), "libraries": library_versions()}
        place = self._root / name.split(":", 1)[0] / digest_of(whole)
        if place.is_dir():
            self.seconds.setdefault(name, 0.0)
            return place
        start = time.monotonic()
        with disk_errors(place):
            make_folder(place.parent)
            remove_left_parts(place.parent)
            with part_folder(place.parent, place.name[:12]) as part:
                produce(part)
                (part / "key.json").write_text(json.dumps(whole, indent=1, sort_keys=True), encoding="utf-8")
                self._put(part, place)
        self.seconds[name] = time.monotonic() - start
        return place

    @staticmethod
    def _put(part: Path, place: Path) -> None:
        """Move the finished folder into place; another process may have been faster, with the same result."""
        part.chmod(0o755)
        try:
            os.rename(part, place)  # noqa: PTH104 - a rename that must not replace
        except OSError:
            if not place.is_dir():
                raise
