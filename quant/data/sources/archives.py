"""Archives (zip, wheel, tar and its compressed forms), read without trust.

Nothing is ever unpacked by the archive's own library: the bytes of each wanted member are copied into files that are opened
here, under names that were checked. So no name, link, device or permission of an archive can touch the disk.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast

from quant.errors import SourceError

_UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, NotImplementedError)
_ENCRYPTED = 0x1
_DRIVE = re.compile(r"^[A-Za-z]:")
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_COMPRESSED: tuple[tuple[bytes, Any], ...] = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))


@dataclass(frozen=True)
class Limits:
    """Bounds on what an archive may hold.

    Args:
        total_bytes: Bytes of all members together.
        members: Number of members.
        ratio: Unpacked bytes per byte of the archive, where more than `free_bytes` are unpacked.
        free_bytes: Up to this size any ratio is harmless.
        header_bytes: Bytes of one header (a long name, say), which is held in memory.
    """

    total_bytes: int = 8 << 30
    members: int = 200_000
    ratio: int = 300
    free_bytes: int = 256 << 20
    header_bytes: int = 16 << 20


LIMITS = Limits()


@dataclass(frozen=True)
class Member:
    """A member of an archive: its name as stored, its size in bytes, and where it points if it is a link."""

    name: str
    size: int
    kind: Literal["file", "folder", "link", "other"]
    target: str = ""


class Archive(Protocol):
    """An open archive."""

    def members(self) -> Iterator[Member]:
        """Each member, in the order of the archive."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """The bytes of the regular file `name`."""
        ...


@contextmanager
def open_archive(path: Path, *, limits: Limits | None = None) -> Iterator[tuple[Archive, dict[str, Member]]]:
    """Open the archive at `path` and give it with its members (but folders) by normal name; every name and the bounds are checked first.

    Raises:
        SourceError: It is no archive, is damaged, holds a name that leaves its folder, or exceeds `limits`.
    """
    limits = limits or LIMITS
    with ExitStack() as stack:
        with _damage(path):
            archive = _open(path, stack, limits)
            if archive is None:
                raise SourceError(f"{path.name!r} is no archive that can be opened", hint="zip, whl, tar, tar.gz, tar.bz2 and tar.xz can")
            members = _checked(archive, path, limits)
        yield archive, members


def is_archive(path: Path) -> bool:
    """Whether `path` begins like an archive that `open_archive` may open."""
    with path.open("rb") as file:
        head = file.read(512)
    return head.startswith((*_ZIP, *(magic for magic, _ in _COMPRESSED))) or head[257:262] == b"ustar"


def copy_member(archive: Archive, members: dict[str, Member], name: str, to: Path) -> None:
    """Write the bytes of member `name` (of the file that it points to, if it is a link) to the new file `to`.

    Raises:
        SourceError: It is a device, or a link that leaves the archive or points to no file of it; or its data are damaged.
    """
    file = _followed(members, name)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SourceError(f"the name {name!r} of a member of the archive is no Unicode text", hint="name another file, or a folder without it") from error
    with _damage(Path(name)):
        left = file.size
        with archive.open(file.name) as stream, _new_file(to, name) as out:
            while piece := stream.read(1 << 20):
                left -= len(piece)
                if left < 0:
                    raise SourceError(f"member {name!r} of the archive is larger than it says ({file.size} bytes)")
                out.write(piece)
        if left:
            raise SourceError(f"member {name!r} of the archive ends {left} bytes early")


def _new_file(path: Path, name: str) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")
    except (FileExistsError, NotADirectoryError) as error:
        raise SourceError(f"member {name!r} of the archive is in the way of another member") from error


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise SourceError(f"{path.name!r} is damaged or cannot be read: {error}") from error
    except OSError as error:
        if error.errno is not None:  # the disk's; without a number it is a decompressor's
            raise
        raise SourceError(f"{path.name!r} is damaged or cannot be read: {error}") from error


def _open(path: Path, stack: ExitStack, limits: Limits) -> Archive | None:
    with path.open("rb") as file:
        head = file.read(512)
    if head.startswith(_ZIP):
        return _Zip(stack.enter_context(zipfile.ZipFile(path)))
    opener = next((opener for magic, opener in _COMPRESSED if head.startswith(magic)), None)
    if opener is None and head[257:262] != b"ustar":
        return None
    stream = stack.enter_context(opener(path, "rb") if opener else path.open("rb"))
    bounded = cast("IO[bytes]", _BoundedReads(stream, limits.header_bytes))
    return _Tar(stack.enter_context(tarfile.open(fileobj=bounded, mode="r:")))


def _checked(archive: Archive, path: Path, limits: Limits) -> dict[str, Member]:
    members: dict[str, Member] = {}
    total = 0
    allowed = min(limits.total_bytes, max(limits.free_bytes, limits.ratio * path.stat().st_size))
    # counted while the headers are read, so that a bomb is not unpacked for being looked at
    for count, member in enumerate(archive.members(), start=1):
        total += member.size
        if total > allowed:
            raise SourceError(f"{path.name!r} unpacks to more than {allowed} bytes (reached at member {member.name!r})", hint="it looks like an archive bomb")
        if count > limits.members:
            raise SourceError(f"{path.name!r} has more than {limits.members} members (reached at {member.name!r})", hint="it looks like an archive bomb")
        name = _safe_name(member.name, path)
        if member.kind != "folder":
            members[name] = member
    return members


def _safe_name(name: str, path: Path) -> str:
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or _DRIVE.match(name):
        raise SourceError(f"member {name!r} of {path.name!r} would leave the folder that it is unpacked into", hint="do not use this archive")
    return "/".join(parts)


def _followed(members: dict[str, Member], name: str) -> Member:
    member, place = members[name], name
    for _ in range(16):  # a chain of links; a circle ends here too
        if member.kind == "file":
            return member
        if member.kind == "other":
            raise SourceError(f"member {name!r} of the archive is neither a file nor a link to one (a device or pipe)", hint="do not use this archive")
        place = posixpath.normpath(member.target)
        if place.startswith(("/", "../")) or place == "..":
            raise SourceError(f"member {name!r} of the archive is a link that leaves it, to {member.target!r}", hint="do not use this archive")
        if place not in members:
            break
        member = members[place]
    raise SourceError(f"member {name!r} of the archive is a link to {place!r}, which is no file of the archive", hint="name the file itself")


class _Zip:
    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file

    def members(self) -> Iterator[Member]:
        for info in self._file.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                yield Member(info.filename, 0, "folder")  # its name is checked, too
            elif stat.S_ISLNK(mode) and not info.flag_bits & _ENCRYPTED:
                target = self._file.read(info).decode("utf-8", "surrogateescape") if info.file_size <= 4096 else "/"  # noqa: PLR2004 - the longest path of Linux
                yield Member(
                    info.filename, info.file_size, "link", target if target.startswith("/") else posixpath.join(posixpath.dirname(info.filename), target)
                )
            else:
                yield Member(info.filename, info.file_size, "file" if not stat.S_IFMT(mode) or stat.S_ISREG(mode) else "other")

    def open(self, name: str) -> IO[bytes]:
        if self._file.getinfo(name).flag_bits & _ENCRYPTED:
            raise zipfile.BadZipFile("it is encrypted")
        return self._file.open(name)


class _Tar:
    def __init__(self, file: tarfile.TarFile) -> None:
        self._file = file
        self._known: dict[str, tarfile.TarInfo] = {}

    def members(self) -> Iterator[Member]:
        for info in self._file:
            self._known[info.name] = info
            if info.isdir():
                yield Member(info.name, 0, "folder")
            elif info.issym() or info.islnk():
                beside = posixpath.dirname(info.name) if info.issym() else ""
                yield Member(info.name, 0, "link", posixpath.join(beside, info.linkname))
            else:
                yield Member(info.name, info.size, "file" if info.isreg() else "other")

    def open(self, name: str) -> IO[bytes]:
        stream = self._file.extractfile(self._known[name])
        assert stream is not None, name  # only regular files are opened
        return stream


class _BoundedReads:
    """A stream of which nobody can read more than `largest` bytes at once: tarfile holds a whole header in memory."""

    def __init__(self, stream: IO[bytes], largest: int) -> None:
        self._stream = stream
        self._largest = largest

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._largest:
            raise SourceError(f"a header of the archive claims {size} bytes", hint="do not use this archive")
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()
