"""From a source to the local path of the file or folder that it names, checked."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator
from pathlib import Path

from quant.core.digest import digest_of_file
from quant.data.sources.archives import is_archive
from quant.data.sources.cache import Cache, digest_at
from quant.data.sources.contents import NotInsideError, nearest, take_out
from quant.data.sources.hub import from_hub
from quant.data.sources.npm import tarball
from quant.data.sources.packages import distributions
from quant.data.sources.references import FunctionSource, HubSource, Inside, NpmSource, PackageSource, PathSource, parse
from quant.errors import QuantError, RecipeError, SourceError
from quant.recipe.schema import Source

_LOOKED_AT = 20_000


def fetch(source: Source, *, base: Path, where: str = "") -> Path:
    """The local path of the file or folder that `source` names, after its SHA-256 was checked.

    Packages and archives are taken apart in the user's cache; a second call needs no network. What is given must not be
    changed: it is the cache's, or the user's.

    Args:
        source: Where it comes from.
        base: Folder of the recipe, which paths are relative to.
        where: Recipe file and line, for messages.

    Raises:
        RecipeError: The source is malformed, or names a function.
        SourceError: It cannot be had, or its SHA-256 is another.
    """
    try:
        return _fetch(source, base=base)
    except QuantError as error:
        error.at(where)
        raise
    except OSError as error:
        raise SourceError(f"cannot read {str(error.filename or source.source)!r}: {error.strerror or error}", where=where) from error


def _fetch(source: Source, *, base: Path) -> Path:
    ref, inside = parse(source.source), Inside.of(source.file)
    match ref:
        case FunctionSource():
            raise RecipeError(f"a function is no file: {source.source!r}", hint="name a path, package:, npm: or hf: source here")
        case PackageSource() | NpmSource():
            cache = Cache()
            return _kept([str(ref), inside.steps], cache, lambda folder: _from_package(ref, inside, cache, folder, base=base), source)
        case HubSource():
            outer = from_hub(ref, inside.steps[0])
        case PathSource():
            outer = _local(ref.path, base)
            if outer.is_dir():
                outer = _below(outer, inside.steps[0])
            else:
                inside = inside if inside.steps == ("",) else Inside(("", *inside.steps))
    if len(inside.steps) == 1:
        _check(digest_at(outer) if source.sha256 else None, source)
        return outer
    if not outer.is_file() or not is_archive(outer):
        raise SourceError(
            f"{outer.name!r} is no archive, so there is no {source.file!r} in it", hint="zip, whl, tar, tar.gz, tar.bz2 and tar.xz can be looked into"
        )
    rest = Inside(inside.steps[1:])
    name = outer.name.split(".")[0] or "unpacked"
    return _kept(["archive", digest_of_file(outer), rest.steps], Cache(), lambda folder: take_out(outer, rest, folder, name=name), source)


def _local(written: str, base: Path) -> Path:
    try:
        path = base / Path(written).expanduser()
    except RuntimeError as error:  # this is how pathlib says that there is no such user
        raise SourceError(f"no home folder is known for {written!r}", hint="write the whole path") from error
    if path.exists():
        return path
    folder = next(parent for parent in path.parents if parent.is_dir())
    near = nearest(path.name, (child.name for child in folder.iterdir()))
    raise SourceError(f"no file or folder {str(path)!r}", hint=f"nearest in {folder}: {', '.join(near)}" if near else f"{folder} is empty")


def _below(folder: Path, step: str) -> Path:
    path = folder / step
    if not path.exists():
        names = (file.relative_to(folder).as_posix() for file in itertools.islice(folder.rglob("*"), _LOOKED_AT))
        raise NotInsideError(f"no {step!r} in {str(folder)!r}", names=names, wanted=step)
    return path


def _from_package(ref: PackageSource | NpmSource, inside: Inside, cache: Cache, folder: Path, *, base: Path) -> Path:
    """Take `inside` out of the first distribution that has it."""
    name = f"{ref.name.rpartition('/')[2]}-{ref.version}"
    misses: dict[str, NotInsideError] = {}
    with contextlib.closing(_archives(ref, cache, base=base)) as archives:
        for archive, strip in archives:
            try:
                return take_out(archive, inside, folder, name=name, strip=strip)
            except NotInsideError as error:
                misses[archive.name] = error
    names = [name for miss in misses.values() for name in miss.names]
    wanted = list(misses.values())[-1].wanted
    raise NotInsideError(f"no {str(inside)!r} in {ref} (looked in {' and '.join(misses)})", names=names, wanted=wanted)


def _archives(ref: PackageSource | NpmSource, cache: Cache, *, base: Path) -> Generator[tuple[Path, bool], None, None]:
    if isinstance(ref, PackageSource):
        yield from distributions(ref, cache)
    else:
        yield tarball(ref, cache, base=base), True


def _kept(key: list[object], cache: Cache, take: Callable[[Path], Path], source: Source) -> Path:
    """The checked content for `key`: from the cache if it is there and intact, else as `take` puts it into an empty folder."""
    match cache.known(key):
        case {"digest": str(digest), "name": str(name)} if path := cache.find(digest, name, kind="contents"):
            _check(digest, source)
            return path
    with cache.scratch() as folder:
        taken = take(folder)
        digest = digest_at(taken)
        _check(digest, source)  # before it is kept: what is not as expected is not handed out, now or later
        path = cache.keep(taken, digest, kind="contents")
    cache.note(key, {"digest": digest, "name": path.name})
    return path


def _check(digest: str | None, source: Source) -> None:
    if source.sha256 and digest != source.sha256:
        what = f"{source.file} of {source.source}" if source.file else source.source
        hint = "if the file is right, mend `sha256` in the recipe; if not, look where it came from"
        raise SourceError(f"SHA-256 of {what!r} is {digest}, but the recipe expects {source.sha256}", hint=hint)
