"""Fetching over HTTP: the machine's certificates and proxies, bounded sizes, checked hashes, and errors in words."""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit, urlunsplit

from quant.core.progress import progress
from quant.errors import SourceError

if TYPE_CHECKING:
    from unearth.fetchers import PyPIClient

T = TypeVar("T")

ATTEMPTS = 3
PAUSE_S = 0.5
LARGEST_DOWNLOAD = 8 << 30
_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_TRUE = frozenset({"1", "true", "yes", "on"})


def is_offline() -> bool:
    """Whether `QUANT_OFFLINE` forbids the network."""
    return os.environ.get("QUANT_OFFLINE", "").strip().lower() in _TRUE


def shown(url: str) -> str:
    """`url` as it may be shown: without user, password, query and fragment.

    Example:
        >>> shown("https://me:secret@example.org/simple/?token=1#sha256=0")
        'https://example.org/simple/'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_local(url: str) -> bool:
    """Whether `url` is a path or a file of this machine, which needs no network."""
    return "://" not in url or url.startswith("file:")


def certificates(cafile: str | None = None, *, client_cert: str | None = None) -> ssl.SSLContext | bool:
    """What servers' certificates are checked against: `cafile`, else what the environment names, else the system's.

    Args:
        cafile: File or folder with certificates.
        client_cert: File with our own certificate and its key, for servers that ask for one.

    Raises:
        SourceError: A file is not there, or holds no certificates.
    """
    chosen = cafile or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if not chosen and not client_cert:
        return True  # the client looks at SSL_CERT_FILE, SSL_CERT_DIR and the system
    path = Path(chosen).expanduser() if chosen else None
    try:
        context = ssl.create_default_context(cafile=path if path and not path.is_dir() else None, capath=path if path and path.is_dir() else None)
        if client_cert:
            context.load_cert_chain(Path(client_cert).expanduser())
    except OSError as error:  # SSLError is one
        place = ", ".join(str(file) for file in (chosen, client_cert) if file)
        raise SourceError(
            f"cannot read certificates: {error}", where=place, hint="mend `cert` (npm: `cafile`) in its configuration, or REQUESTS_CA_BUNDLE"
        ) from error
    return context


@contextmanager
def client(*, verify: ssl.SSLContext | bool, trusted_hosts: tuple[str, ...] = (), proxy: str | None = None, timeout_s: float = 30.0) -> Iterator[PyPIClient]:
    """An HTTP client, which reads `file:` URLs, too."""
    from unearth.fetchers import PyPIClient  # noqa: PLC0415 - `import quant` stays light

    with PyPIClient(trusted_hosts=trusted_hosts, verify=verify, proxy=proxy, timeout=timeout_s, follow_redirects=True) as opened:
        yield opened


def patiently(ask: Callable[[], T], url: str) -> T:
    """What `ask` gives; asked again when the network stumbles.

    Raises:
        SourceError: There is no answer from `url`.
    """
    import httpx2  # noqa: PLC0415 - `import quant` stays light

    for attempt in range(1, ATTEMPTS + 1):
        try:
            return ask()
        except httpx2.TransportError as error:
            if attempt == ATTEMPTS:
                raise unreachable(url, str(error) or type(error).__name__) from error
            time.sleep(PAUSE_S * attempt)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise unreachable(url, str(error) or type(error).__name__) from error
    raise AssertionError(ATTEMPTS)


def unreachable(url: str, reason: str) -> SourceError:
    """The error for `url` not answering, for `reason`."""
    return SourceError(
        f"cannot reach the package index {shown(url)}: {_CREDENTIALS.sub('//', reason)}",
        hint="check the network, proxy and certificates; what was fetched once is in the cache and needs no network",
    )


def offline(what: str) -> SourceError:
    """The error for `what` being asked for while the network is forbidden."""
    return SourceError(
        f"cannot reach the package index for {what}: QUANT_OFFLINE is set, and it is not in the cache",
        hint="unset QUANT_OFFLINE and fetch it once",
    )


def download(opened: PyPIClient, url: str, to: Path, *, hashes: Mapping[str, str], headers: Mapping[str, str] | None = None) -> str:
    """Write what is at `url` to the new file `to`, and give its SHA-256 (hex).

    Args:
        opened: An open client.
        url: What to fetch.
        to: The file to be made, in a scratch folder.
        hashes: Algorithm -> hex digest, as the index says; each must hold.
        headers: More headers for the request.

    Raises:
        SourceError: It cannot be had, is too large, or is not what its hashes say.
    """
    digests = patiently(lambda: _stream(opened, url, to, algorithms={"sha256", *hashes}, headers=headers), url)
    for algorithm, expected in hashes.items():
        if digests[algorithm] != expected.lower():
            raise SourceError(
                f"{to.name!r} has {algorithm} {digests[algorithm]}, but its index says {expected}",
                hint="the download was altered or cut short: try again",
            )
    return digests["sha256"]


def _stream(opened: PyPIClient, url: str, to: Path, *, algorithms: set[str], headers: Mapping[str, str] | None) -> dict[str, str]:
    running = {name: hashlib.new(name) for name in algorithms}
    # a server must not compress an archive once more, nor have it taken for compressed: its hashes are of the bytes as they are
    with opened.stream("GET", url, headers={**(headers or {}), "Accept-Encoding": "identity"}) as answer, to.open("wb") as file:
        if not answer.is_success:
            raise SourceError(f"cannot fetch {to.name!r} from {shown(url)}: status {answer.status_code} {answer.reason_phrase}")
        size = answer.headers.get("Content-Length", "")
        with progress(f"fetching {to.name} (kB)", int(size) // 1000 if size.isdecimal() else None) as advance:
            done = 0
            for piece in answer.iter_bytes(1 << 18):
                advance((done + len(piece)) // 1000 - done // 1000)
                done += len(piece)
                if done > LARGEST_DOWNLOAD:
                    raise SourceError(f"{to.name!r} is larger than {LARGEST_DOWNLOAD} bytes")
                for digest in running.values():
                    digest.update(piece)
                file.write(piece)
    return {name: digest.hexdigest() for name, digest in running.items()}
