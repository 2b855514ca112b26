"""Where pip is configured to look: its files and `PIP_*` variables, read without pip (which need not be installed)."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quant.errors import SourceError

_SECTIONS = ("global", "download")
_FILE = "pip.ini" if sys.platform == "win32" else "pip.conf"
_FALSE = frozenset({"", "0", "false", "no", "off", "f", "n"})


@dataclass(frozen=True)
class PipSettings:
    """What of pip's settings says where packages come from.

    Args:
        index_url: The index; None for the usual one.
        extra_index_urls: Further indexes.
        find_links: Pages, folders and files with links to packages.
        no_index: Whether only `find_links` are looked at.
        trusted_hosts: Hosts whose certificates are not checked.
        cert: File or folder with certificates.
        client_cert: File with the client's certificate and key.
        proxy: Proxy for all.
        timeout_s: Seconds without an answer.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout_s: float = 30.0


def pip_settings() -> PipSettings:
    """The settings that pip would have here: global, user and environment's files, then `PIP_*` variables, the last wins.

    Raises:
        SourceError: A file of pip's settings, or a value in it, cannot be read.
    """
    values: dict[str, str] = {}
    for path in _files():
        values.update(_read(path))
    values.update({key[4:].lower().replace("_", "-"): value for key, value in os.environ.items() if key.startswith("PIP_") and value})
    timeout = values.get("timeout") or values.get("default-timeout") or "30"
    try:
        timeout_s = float(timeout)
    except ValueError as error:
        raise SourceError(f"pip's timeout {timeout!r} is no number", hint="mend pip's configuration or PIP_TIMEOUT") from error
    return PipSettings(
        index_url=values.get("index-url") or values.get("pypi-url"),
        extra_index_urls=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        no_index=values.get("no-index", "").lower() not in _FALSE,
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        cert=values.get("cert"),
        client_cert=values.get("client-cert"),
        proxy=values.get("proxy"),
        timeout_s=timeout_s,
    )


def _files() -> Iterator[Path]:
    chosen = os.environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return  # pip's way to say: no files at all
    home = Path("~").expanduser()
    if sys.platform == "win32":
        yield Path(os.environ.get("PROGRAMDATA", "C:\\ProgramData")) / "pip" / _FILE
        yield home / "pip" / _FILE
        yield Path(os.environ.get("APPDATA", str(home))) / "pip" / _FILE
    elif sys.platform == "darwin":
        yield Path("/Library/Application Support/pip") / _FILE
        yield home / ".pip" / _FILE
        own = home / "Library" / "Application Support" / "pip"
        yield (own if own.is_dir() else home / ".config" / "pip") / _FILE
    else:
        for folder in reversed((os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")):
            yield Path(folder) / "pip" / _FILE
        yield Path("/etc") / _FILE
        yield home / ".pip" / _FILE
        yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / _FILE
    yield Path(sys.prefix) / _FILE
    if chosen:
        yield Path(chosen)


def _read(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        if not path.is_file():
            return {}
        parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
    except (OSError, UnicodeError, configparser.Error) as error:
        raise SourceError(f"cannot read pip's configuration: {error}", where=str(path), hint="mend the file, or set PIP_CONFIG_FILE") from error
    values: dict[str, str] = {}
    for section in _SECTIONS:
        if parser.has_section(section):
            values.update({key.lower().replace("_", "-"): value for key, value in parser.items(section)})
    return values
