"""What the cache holds, and removing from it what no run will find again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from quant.core.files import disk_errors
from quant.engine.cache import KEY_FILE, code_digest, library_versions
from quant.engine.lock import part_folder, remove_left_parts

_DAY = 86400.0


@dataclass(frozen=True)
class Held:
    """What the cache holds, or what was removed from it.

    Args:
        results: Number of results of stages.
        size_bytes: Bytes that they take.
        stages: Stage -> bytes of its results.
    """

    results: int
    size_bytes: int
    stages: dict[str, int]


def held(root: Path, *, useless: bool = False, unused_days: float | None = None) -> Held:
    """What a cache of stage results holds.

    Args:
        root: The cache's folder.
        useless: Count only what no run can use any more: made by another version of the toolkit or of a library.
        unused_days: Count only what no run has used for so many days; with `useless`, either is enough.
    """
    return _sum(_found(root, useless=useless, unused_days=unused_days))


def prune(root: Path, *, unused_days: float | None = None) -> Held:
    """Remove what no run can use any more, and what none has used for `unused_days`; gives what was removed.

    A run that goes on meanwhile uses results of its own version; only `unused_days` of less than its own time would take them from it.

    Raises:
        RunError: The cache cannot be written.
    """
    gone = []
    for place, stage, size in _found(root, useless=True, unused_days=unused_days):
        with disk_errors(place), part_folder(place.parent, place.name[:12]) as old, suppress(FileNotFoundError):
            place.rename(old / place.name)  # in one step: who looks for it finds it whole, or not at all
            gone.append((place, stage, size))
    if root.is_dir():
        for stage_folder in root.iterdir():
            remove_left_parts(stage_folder)
    return _sum(gone)


def _found(root: Path, *, useless: bool, unused_days: float | None) -> list[tuple[Path, str, int]]:
    """(folder, stage, bytes) of the results that are asked for; all of them where nothing is asked."""
    everything = not useless and unused_days is None
    before = None if unused_days is None else time.time() - unused_days * _DAY
    found = []
    for place in _results(root):
        with suppress(FileNotFoundError):  # removed meanwhile
            if everything or (useless and not _usable(place)) or (before is not None and _used(place) < before):
                found.append((place, place.parent.name, sum(p.stat().st_size for p in place.rglob("*") if p.is_file())))
    return found


def _results(root: Path) -> Iterator[Path]:
    for stage in sorted(root.iterdir()) if root.is_dir() else ():
        if stage.is_dir():
            yield from (place for place in sorted(stage.iterdir()) if place.is_dir() and not place.name.startswith("."))


def _usable(place: Path) -> bool:
    """Whether a run of this version, with the libraries that are installed, could find the result.

    What a stage leaves on its way has no key yet: it is useless once no process has touched it for a day.
    """
    try:
        key = json.loads((place / KEY_FILE).read_bytes())
    except FileNotFoundError:
        return time.time() - max(p.stat().st_mtime for p in (place, *place.rglob("*"))) < _DAY
    except ValueError:
        return False
    return isinstance(key, dict) and key.get("code") == code_digest() and key.get("libraries") == library_versions()


def _used(place: Path) -> float:
    """When a run last used a result, in seconds since the epoch."""
    key = place / KEY_FILE
    return (key if key.is_file() else place).stat().st_mtime


def _sum(found: list[tuple[Path, str, int]]) -> Held:
    stages: dict[str, int] = {}
    for _, stage, size in found:
        stages[stage] = stages.get(stage, 0) + size
    return Held(len(found), sum(stages.values()), stages)
