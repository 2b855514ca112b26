"""Plug-ins by name: a registry for each kind of plug-in, filled by importing every file of its package."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from quant.errors import RecipeError


class Options(BaseModel):
    """The options of one plug-in, as a recipe may write them: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Plugin(Protocol):
    """What a registry needs to know of a class: its name in recipes, and the model of its options."""

    kind: str
    Options: type[Options]

    def __init__(self, options: Any, /) -> None: ...


PluginT = TypeVar("PluginT")
ClassT = TypeVar("ClassT", bound=type)


class Registry(Generic[PluginT]):
    """The plug-ins of one noun ("calibrator", "target", ...), by `kind`.

    The registry is filled on first use by importing every module below `package`; a module that cannot be imported is a
    broken program and stops with its own traceback.

    Args:
        noun: What one plug-in is called in messages.
        package: The package whose modules register themselves with `add`.
    """

    def __init__(self, noun: str, package: str) -> None:
        self.noun = noun
        self._package = package
        self._classes: dict[str, type[PluginT]] = {}
        self._loaded = False

    def add(self, cls: ClassT) -> ClassT:
        """Register `cls` under its `kind`; used as a decorator.

        Raises:
            AssertionError: Another class has that `kind` already.
        """
        kind = str(cls.kind)  # type: ignore[attr-defined]  # Plugin's contract; a Protocol bound would bar narrower protocols
        known = self._classes.get(kind)
        here, there = (f"{c.__module__}.{c.__qualname__}" if c else "" for c in (cls, known))
        if known is not None and here != there:
            raise AssertionError(f"{self.noun} {kind!r} is registered by {there} and by {here}")
        self._classes[kind] = cls
        return cls

    def _load(self) -> None:
        if self._loaded:
            return
        package = importlib.import_module(self._package)
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
            importlib.import_module(f"{self._package}.{module.name}")
        self._loaded = True

    def kinds(self) -> tuple[str, ...]:
        """The names of all plug-ins, sorted."""
        self._load()
        return tuple(sorted(self._classes))

    def get(self, kind: str) -> type[PluginT]:
        """The class registered as `kind`.

        Raises:
            RecipeError: No such plug-in; the hint names the nearest ones.
        """
        self._load()
        if kind not in self._classes:
            raise RecipeError(f"unknown {self.noun} {kind!r}", hint=did_you_mean(kind, self.kinds()))
        return self._classes[kind]

    def make(self, kind: str, options: dict[str, Any] | None = None) -> PluginT:
        """The plug-in `kind` with `options` (checked against its `Options`)."""
        cls: Any = self.get(kind)
        made: PluginT = cls(cls.Options.model_validate(options or {}))
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds())

    def __contains__(self, kind: object) -> bool:
        return kind in self.kinds()


def did_you_mean(given: str, known: Sequence[str], *, most: int = 3) -> str:
    """A hint that names what is nearest to `given` among `known`.

    Example:
        >>> did_you_mean("minmx", ["entropy", "minmax", "mse"])
        "did you mean 'minmax'?"
        >>> did_you_mean("zzz", ["entropy", "minmax"])
        'known: entropy, minmax'
    """
    near = difflib.get_close_matches(given, known, n=most, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(sorted(known)[:20])
    return f"known: {shown}" if shown else ""
