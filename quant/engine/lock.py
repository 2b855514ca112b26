"""Locks that go with the process that holds them, however it ends: on a run's folder, and on folders that are being filled."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quant.core.files import disk_errors, make_folder
from quant.errors import RunError

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` (made if it is missing) for this process. A folder that is left empty by an error goes again.

    Raises:
        RunError: Another run holds it, or it cannot be written.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    with disk_errors(folder):
        make_folder(folder)
        handle = _open(folder)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # while it is held: who opens it later makes another one
        os.close(handle)
        with suppress(OSError):  # not empty: the run has left something
            for place in made:
                place.rmdir()


def _open(folder: Path) -> int:
    """The lock file of `folder`, held."""
    while True:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
            os.close(handle)
            process = f" (process {holder})" if holder else ""
            raise RunError(f"another run is using this folder{process}", where=str(folder), hint="wait for it, or give another --output") from error
        if _is(handle, folder / LOCK):
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            return handle
        os.close(handle)  # its holder has just finished and removed it


def _is(handle: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


@contextmanager
def part_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder in `parent` to be filled and moved to its place; removed if it is still there at the end."""
    while True:
        part = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=parent))
        handle = os.open(part, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _is(handle, part):
            break
        os.close(handle)  # another process took it for one that was left behind
    try:
        yield part
    except RunError as error:
        if error.where.startswith(str(part)):  # which file of it, is nobody's concern
            error.where = str(parent)
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(handle)


def remove_left_parts(parent: Path) -> None:
    """Remove the part folders in `parent` that nobody fills any more: their lock went with their process."""
    for part in parent.glob(".*.part"):
        with suppress(OSError):  # gone meanwhile, or not ours to remove
            handle = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(part, ignore_errors=True)
            finally:
                os.close(handle)
