"""One run at a time in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quant.core.files import disk_errors
from quant.errors import RunError

_LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` (made if it is missing) for this process; the lock goes with the process, however it ends.

    Raises:
        RunError: Another run holds it, or it cannot be written.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
            raise RunError(f"another run is using this folder{f' (process {holder})' if holder else ''}", where=str(folder), hint="wait for it, or give another --output") from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)
