"""`npm:NAME@VERSION`: the tarball of a package from the registry that npm is configured with. None of its scripts ever run."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from quant.data.sources import network
from quant.data.sources.cache import Cache
from quant.data.sources.contents import nearest
from quant.data.sources.references import NpmSource
from quant.errors import SourceError

_VARIABLE = re.compile(r"\$\{([^}?]+)\??\}")


def tarball(ref: NpmSource, cache: Cache, *, base: Path) -> Path:
    """The path of the package's tarball, in the cache.

    Args:
        ref: The package.
        cache: Where it is kept.
        base: Folder whose `.npmrc` counts (that of the recipe).

    Raises:
        SourceError: No registry is known or reached, it has no such package or version, or sends what it did not promise.
    """
    key = ["npm", ref.name, ref.version]
    match cache.known(key):
        case {"file": str(file), "sha256": str(digest)} if path := cache.find(digest, file, kind="downloads"):
            return path
    settings = npm_settings(base)
    registry = _registry(ref, settings)
    if network.is_offline() and not network.is_local(registry):
        raise network.offline(str(ref))
    with network.client(verify=network.certificates(settings.get("cafile")), proxy=settings.get("https-proxy") or settings.get("proxy")) as opened:
        headers = _authorization(registry, settings)
        url = registry + quote(ref.name, safe="@") + "/" + quote(ref.version)
        answer = network.patiently(lambda: opened.get(url, headers=headers), registry)
        if answer.status_code in {404, 405}:
            whole = registry + quote(ref.name, safe="@")
            raise _missing(ref, registry, network.patiently(lambda: opened.get(whole, headers=headers), registry).content)
        if not answer.is_success:
            raise network.unreachable(registry, f"status {answer.status_code}")
        address, hashes = _distribution(answer.content, ref, registry)
        with cache.scratch() as folder:
            path = folder / f"{ref.name.rpartition('/')[2]}-{ref.version}.tgz"
            sha256 = network.download(opened, address, path, hashes=hashes, headers=headers)
            kept = cache.keep(path, sha256, kind="downloads")
    cache.note(key, {"file": kept.name, "sha256": sha256})
    return kept


def npm_settings(base: Path) -> dict[str, str]:
    """Npm's settings as its files and `NPM_CONFIG_*` variables give them: global, user, project, environment; the last wins.

    Raises:
        SourceError: A file cannot be read.
    """
    variables = {key[11:].lower().replace("_", "-"): value for key, value in os.environ.items() if key.lower().startswith("npm_config_") and value}
    prefix = variables.get("prefix") or os.environ.get("PREFIX") or (str(Path(npm).parent.parent) if (npm := shutil.which("npm")) else "/usr")
    files = (
        Path(variables.get("globalconfig") or Path(prefix) / "etc" / "npmrc"),
        Path(variables.get("userconfig") or "~/.npmrc").expanduser(),
    )
    settings: dict[str, str] = {}
    for path in files:
        settings.update(_read(path))
    # a recipe's folder may be a stranger's: it must not send our variables anywhere, so there they stay as written
    return {**{key: _VARIABLE.sub(lambda found: os.environ.get(found[1], ""), value) for key, value in settings.items()}, **_read(base / ".npmrc"), **variables}


def _read(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    except (OSError, UnicodeError) as error:
        raise SourceError(f"cannot read npm's configuration: {error}", where=str(path), hint="mend the file, or set NPM_CONFIG_USERCONFIG") from error
    pairs = (line.partition("=") for line in map(str.strip, lines) if line and line[0] not in "#;[")
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def _registry(ref: NpmSource, settings: dict[str, str]) -> str:
    scope = ref.name.partition("/")[0] if ref.name.startswith("@") else ""
    url = settings.get(f"{scope}:registry") or settings.get("registry") or _asked_of_npm()
    if not url:
        raise SourceError(
            "no npm registry is configured, and there is no npm to ask for the usual one", hint="set NPM_CONFIG_REGISTRY, or `registry=` in .npmrc"
        )
    return url.rstrip("/") + "/"


def _asked_of_npm() -> str:
    npm = shutil.which("npm")
    if npm is None:
        return ""
    asked = subprocess.run([npm, "config", "get", "registry"], cwd=Path(npm).parent, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - no shell, fixed words
    said = asked.stdout.strip()
    return said if asked.returncode == 0 and "://" in said else ""


def _authorization(registry: str, settings: dict[str, str]) -> dict[str, str]:
    """The header for `registry`, from the settings of the longest part of its URL that has any."""
    address = registry.partition(":")[2]
    parts = address.rstrip("/").split("/")
    for length in range(len(parts), 2, -1):
        prefix = "/".join(parts[:length])
        for key in (f"{prefix}/", prefix):
            if token := settings.get(f"{key}:_authToken"):
                return {"Authorization": f"Bearer {token}"}
            if basic := settings.get(f"{key}:_auth"):
                return {"Authorization": f"Basic {basic}"}
            if (user := settings.get(f"{key}:username")) and (password := settings.get(f"{key}:_password")):
                pair = user.encode() + b":" + base64.b64decode(password)
                return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _distribution(content: bytes, ref: NpmSource, registry: str) -> tuple[str, dict[str, str]]:
    """The tarball's address, on the configured registry, and its hashes in hex."""
    try:
        dist = json.loads(content)["dist"]
        address, integrity, shasum = str(dist["tarball"]), str(dist.get("integrity") or ""), dist.get("shasum")
        hashes = {
            name: base64.b64decode(value).hex()
            for name, _, value in (part.partition("-") for part in integrity.split())
            if name in {"sha256", "sha384", "sha512"}
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"the answer of {network.shown(registry)} about {ref} cannot be read: {error!r}", hint="check the registry that npm is configured with"
        ) from error
    if not hashes and shasum:
        hashes = {"sha1": str(shasum)}
    return _on_registry(address, registry), hashes


def _on_registry(address: str, registry: str) -> str:
    """`address`, moved onto the configured registry: a mirror may pass on the address of what it mirrors.

    Example:
        >>> _on_registry("https://elsewhere.example/a/-/a-1.tgz", "https://mirror.example/npm/")
        'https://mirror.example/npm/a/-/a-1.tgz'
    """
    told, own = urlsplit(address), urlsplit(registry)
    if (told.scheme, told.hostname, told.port) == (own.scheme, own.hostname, own.port):
        return address
    path = told.path if told.path.startswith(own.path) else own.path.rstrip("/") + told.path
    return urlunsplit((own.scheme, own.netloc, path, "", ""))


def _missing(ref: NpmSource, registry: str, content: bytes) -> SourceError:
    try:
        versions = list(json.loads(content)["versions"])
    except (ValueError, KeyError, TypeError):
        return SourceError(f"no package {ref.name!r} at {network.shown(registry)}", hint="check its name, and the registry that npm is configured with")
    near = ", ".join(nearest(ref.version, versions))
    return SourceError(f"no version {ref.version} of package {ref.name!r} at {network.shown(registry)}", hint=f"near versions: {near}")
