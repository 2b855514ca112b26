"""`package:NAME==VERSION`: distributions from the index that pip is configured with. They are data here: never built, never run."""

from __future__ import annotations

import bisect
import hashlib
import logging
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from quant.data.sources import network
from quant.data.sources.cache import Cache
from quant.data.sources.pip_settings import PipSettings, pip_settings
from quant.data.sources.references import PackageSource
from quant.errors import SourceError

if TYPE_CHECKING:
    import httpx2
    from unearth import Package, PackageFinder
    from unearth.fetchers import Fetcher, PyPIClient

Kind = Literal["wheel", "sdist"]
_KINDS: tuple[Kind, ...] = ("wheel", "sdist")
_SHOWN = 5
_HASHES = frozenset(name for name in hashlib.algorithms_guaranteed if not name.startswith("shake"))
_ABSENT = frozenset({404, 410})

# it would warn on standard error about each index that lacks a package; whoever sets up logging still hears it
logging.getLogger("unearth").addHandler(logging.NullHandler())


def distributions(ref: PackageSource, cache: Cache) -> Generator[tuple[Path, bool], None, None]:
    """The distributions of `ref`, the best wheel first, then the sdist; each is fetched only when it is asked for.

    Nothing gets installed, so a wheel for any Python and platform will do; one for all is preferred.

    Yields:
        The path of the archive, and whether its one top folder is to be left out of names (that of an sdist is).

    Raises:
        SourceError: The index cannot be reached, has no such package or version, or sends what it did not promise.
    """
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - `import quant` stays light
    from packaging.version import Version  # noqa: PLC0415

    key = ["package", canonicalize_name(ref.name), str(Version(ref.version))]
    notes = cache.known(key)
    with ExitStack() as stack:
        found: _Found | None = None
        for kind in _KINDS:
            path = _cached(notes, kind, cache)
            if path is None and not (kind in notes and notes[kind] is None):
                found = found or stack.enter_context(_found(ref))
                path = found.fetch(kind, cache)
                notes[kind] = {"file": path.name, "sha256": path.parent.name} if path else None
                cache.note(key, notes)
            if path is not None:
                yield path, kind == "sdist"


def _cached(notes: dict[str, object], kind: Kind, cache: Cache) -> Path | None:
    match notes.get(kind):
        case {"sha256": str(digest), "file": str(file)}:
            return cache.find(digest, file, kind="downloads")
        case _:
            return None


class _Found:
    """The distributions of one version that the index offers."""

    def __init__(self, opened: PyPIClient, packages: list[Package]) -> None:
        self._opened = opened
        self._best: dict[Kind, Package] = {}
        for package in sorted(packages, key=_preference):
            self._best.setdefault("wheel" if package.link.is_wheel else "sdist", package)

    def fetch(self, kind: Kind, cache: Cache) -> Path | None:
        """The path of the best distribution of this kind, fetched into the cache; None when there is none."""
        package = self._best.get(kind)
        if package is None:
            return None
        link = package.link
        if network.is_offline() and not network.is_local(link.url):
            raise network.offline(f"{link.filename!r}")
        hashes = {name: values[0] for name, values in (link.hash_option or {}).items() if name in _HASHES}
        with cache.scratch() as folder:
            path = folder / link.filename
            digest = network.download(self._opened, link.url_without_fragment, path, hashes=hashes)
            return cache.keep(path, digest, kind="downloads")


def _preference(package: Package) -> tuple[bool, bool, str]:
    """Sorts wheels for all platforms first, then those for common ones, sdists by common form; the same on every machine."""
    name = package.link.filename
    return (not name.endswith("-none-any.whl"), not ("manylinux" in name and "x86_64" in name) and not name.endswith(".tar.gz"), name)


@contextmanager
def _found(ref: PackageSource) -> Iterator[_Found]:
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - `import quant` stays light
    from unearth.auth import MultiDomainBasicAuth  # noqa: PLC0415

    settings = pip_settings()
    places = _places(settings)
    verify = network.certificates(settings.cert, client_cert=settings.client_cert)
    with network.client(verify=verify, trusted_hosts=settings.trusted_hosts, proxy=settings.proxy, timeout_s=settings.timeout_s) as opened:
        opened.auth = MultiDomainBasicAuth(prompting=False, index_urls=[url for url, is_index in places if is_index])
        packages, failures = _search(opened, ref, places)
        wanted = SpecifierSet(f"=={ref.version}", prereleases=True)
        fitting = [package for package in packages if package.version and wanted.contains(package.version)]
        if not fitting:
            raise _missing(ref, packages, failures, places)
        yield _Found(opened, fitting)


def _places(settings: PipSettings) -> list[tuple[str, bool]]:
    """Where to look, in order: (URL, whether it is an index)."""
    from unearth import PackageFinder  # noqa: PLC0415 - `import quant` stays light

    usual = PackageFinder().sources[0]["url"]  # the finder knows the usual index
    indexes = () if settings.no_index else (settings.index_url or usual, *settings.extra_index_urls)
    places = [(link, False) for link in settings.find_links] + [(index, True) for index in indexes]
    urls = [(url if "://" in url else Path(url).expanduser().absolute().as_uri(), is_index) for url, is_index in places]
    return [(url, is_index) for url, is_index in urls if not url.startswith("file:") or _is_there(url)]


def _is_there(url: str) -> bool:
    from unearth import Link  # noqa: PLC0415 - `import quant` stays light

    return Link(url).file_path.exists()


def _search(opened: PyPIClient, ref: PackageSource, places: list[tuple[str, bool]]) -> tuple[list[Package], list[SourceError]]:
    """All versions of a package, and what went wrong at places that gave none: one place in trouble does not hide the others."""
    from unearth import Link, PackageFinder  # noqa: PLC0415 - `import quant` stays light
    from unearth.collector import is_secure_origin  # noqa: PLC0415

    packages: dict[str, Package] = {}
    failures: list[SourceError] = []
    answers: list[httpx2.Response] = []
    fetcher = cast("Fetcher", opened)  # unearth's own client has a wider signature than its protocol says
    opened.event_hooks = {"response": [answers.append]}
    for url, is_index in places:
        finder = PackageFinder(fetcher, index_urls=[url] if is_index else [], find_links=[] if is_index else [url], ignore_compatibility=True)
        if network.is_offline() and not network.is_local(url):
            failures.append(network.offline(str(ref)))
        elif not is_secure_origin(fetcher, Link(url)):
            hint = "give its https:// URL, or name its host in pip's trusted-host"
            failures.append(SourceError(f"the package index {network.shown(url)} is neither https nor trusted", hint=hint))
        else:
            answers.clear()
            try:
                found = network.patiently(partial(_offered, finder, ref.name), url)
            except SourceError as error:
                failures.append(error)
                continue
            for package in found:
                packages.setdefault(package.link.filename, package)
            failures += [network.unreachable(url, f"status {bad.status_code}") for bad in answers[-1:] if bad.is_error and bad.status_code not in _ABSENT]
    return list(packages.values()), failures


def _offered(finder: PackageFinder, name: str) -> list[Package]:
    return list(finder.find_all_packages(name, allow_yanked=True))


def _missing(ref: PackageSource, packages: list[Package], failures: list[SourceError], places: list[tuple[str, bool]]) -> SourceError:
    from packaging.version import Version  # noqa: PLC0415 - `import quant` stays light

    if failures:
        return failures[0]
    looked = ", ".join(network.shown(url) for url, _ in places) or "no index at all"
    if not packages:
        return SourceError(f"no package {ref.name!r} at {looked}", hint="check its name, and pip's configuration (index-url, extra-index-url, find-links)")
    versions = sorted({Version(package.version) for package in packages if package.version})
    middle = bisect.bisect(versions, Version(ref.version))
    start = max(0, min(middle - _SHOWN // 2, len(versions) - _SHOWN))
    near = ", ".join(str(version) for version in versions[start : start + _SHOWN])
    return SourceError(f"no version {ref.version} of package {ref.name!r} at {looked}", hint=f"near versions: {near}")
