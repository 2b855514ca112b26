"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quant.errors import RunError

_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")
"""All that NumPy says when a disk is full."""


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what a disk can do to us (full, read-only, forbidden) into a `RunError` that names `path`.

    Raises:
        RunError: The disk is full, or the place cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT} or (error.errno is None and _SHORT_WRITE.search(str(error))):
            raise RunError(
                "no space left on the disk", where=str(path), hint="free some space, or choose another folder; the run goes on where it stopped"
            ) from error
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.EBUSY}:
            raise RunError(f"cannot write here: {os.strerror(error.errno)}", where=str(path), hint="choose a folder that you may write to") from error
        raise


def make_folder(path: Path) -> None:
    """Make the folder `path`, and those that it lies in; nothing happens if it is there.

    Raises:
        RunError: This is a place in which none can be made.
        OSError: It cannot be made for another reason; see `disk_errors`.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # so says /proc of what cannot be made in it
        raise RunError("cannot make this folder", where=str(path), hint="choose a folder that you may write to") from error


def refuse_folder(path: Path) -> None:
    """Refuse a folder where a file is to be written; an empty path is the folder that one works in.

    Raises:
        RunError: `path` is a folder.
    """
    with disk_errors(path):
        if path.is_dir():
            raise RunError("cannot write here: Is a directory", where=str(path), hint="give the name of a file")


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Make something in the folder that `path` lies in, which is made first.

    Raises:
        RunError: Nothing can be made there.
    """
    with disk_errors(path):
        make_folder(path.parent)
        try:
            yield
        except FileNotFoundError as error:  # so says /proc of what cannot be made in it
            raise RunError("nothing can be made in this folder", where=str(path.parent), hint="choose a folder that you may write to") from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it is renamed to `path` in one step, on failure removed."""
    refuse_folder(path)
    with _beside(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
    part = Path(name)
    try:
        with disk_errors(path):
            yield part
            part.chmod(0o644)
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give an empty temporary folder beside `path`; on success it takes the place of `path`, on failure it is removed."""
    with _beside(path):
        part = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        with disk_errors(path):
            yield part
            part.chmod(0o755)
            if path.is_dir():  # moved aside in one step: a kill while it is being removed must not leave half a folder here
                old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
                try:
                    path.replace(old)
                except OSError:
                    old.rmdir()
                    raise
                part.replace(path)
                shutil.rmtree(old)
            else:
                part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    r"""Write `text` (UTF-8, `\n` line ends) to `path`, whole or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all."""
    with whole_file(path) as part:
        part.write_bytes(data)
