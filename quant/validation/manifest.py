"""The manifest of a run: every file and its SHA-256, held against what lies in the folder now."""

from __future__ import annotations

import json
from pathlib import Path

from quant.core.digest import digest_of_file
from quant.engine.folder import MANIFEST, SIGNATURE
from quant.engine.lock import LOCK
from quant.errors import RunError
from quant.validation.findings import Finding

_BESIDE = frozenset({MANIFEST, SIGNATURE, LOCK})


def read_manifest(folder: Path) -> dict[str, str]:
    """Path below `folder` -> SHA-256, as the manifest has it.

    Raises:
        RunError: There is no manifest, or it is none.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise RunError(f"holds no {MANIFEST}", where=str(folder), hint="give the folder of a finished run")
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name): str(digest) for name, digest in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError("not a manifest", where=str(path), hint="the file is damaged; run the recipe again") from error


def changed_files(folder: Path) -> tuple[list[Finding], int]:
    """(every file that is not as the manifest says, number of files that it names).

    Raises:
        RunError: There is no manifest, or it is none.
    """
    told = read_manifest(folder)
    found = [finding for name, digest in sorted(told.items()) if (finding := _changed(folder, name, digest)) is not None]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() or path.is_symlink()}
    found += [_file(name, "is not in the manifest") for name in sorted(there - set(told) - _BESIDE)]
    return found, len(told)


def _changed(folder: Path, name: str, digest: str) -> Finding | None:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        return _file(name, "lies outside the folder")
    if not path.is_file():
        return _file(name, "is missing")
    now = digest_of_file(path)
    return None if now == digest else _file(name, f"is no longer what was written: SHA-256 {now[:12]}…, the manifest says {digest[:12]}…")


def _file(name: str, what: str) -> Finding:
    return Finding(kind="file", where=name, what=what, file=name)
