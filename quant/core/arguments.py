"""Arguments of public functions: what is no path or no text is a user's mistake, said by name before any work."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from quant.errors import QuantError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LONGEST = 60


def with_checked_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`function`, which refuses arguments that are not what they are annotated as: paths, texts and sequences of texts.

    Annotations must be text (`from __future__ import annotations`); those with other types in them are passed over.

    Args:
        function: A public function; a class method before `classmethod`.

    Example:
        >>> @with_checked_arguments
        ... def size(path: Path | str) -> int:
        ...     return len(str(path))
        >>> size("model.onnx")
        10
        >>> size(3)
        Traceback (most recent call last):
        quant.errors.QuantError: size: `path` is a path, got 3, of type int
    """
    signature = inspect.signature(function)
    asked = {name: frozenset(str(p.annotation).split(" | ")) for name, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # says better what is missing, or one too many
        for name, value in bound.arguments.items():
            if name in asked and not (value is None and "None" in asked[name]):
                bound.arguments[name] = _checked(function.__qualname__, name, value, asked[name])
        return function(*bound.args, **bound.kwargs)

    return called


def _checked(function: str, name: str, value: object, kinds: frozenset[str]) -> object:
    """The argument; as a plain path where it only says that it is one, such as a run."""
    if {"Path", "str"} <= kinds and type(value).__name__ not in kinds - {"str"}:
        if not isinstance(value, str | os.PathLike):
            raise _mistake(function, f"`{name}` is a path, got {_told(value)}", _to_a_path(value))
        if not os.fspath(value):
            raise _mistake(function, f"`{name}` is an empty path", "")
        if "\0" in str(value):
            raise _mistake(function, f"`{name}` is a path, got one with a NUL in it, {str(value)!r}", "")
        return value if isinstance(value, str) else Path(value)
    if kinds <= {"str", "None"} and not isinstance(value, str):
        raise _mistake(function, f"`{name}` is text, got {_told(value)}", "")
    if "Sequence[str]" in kinds:
        wrong = value if isinstance(value, str) or not isinstance(value, Iterable) else next((v for v in value if not isinstance(v, str)), None)
        if wrong is not None or isinstance(value, dict):
            raise _mistake(function, f"`{name}` is a list of texts, got {_told(value if wrong is None else wrong)}", _to_a_list(name, value))
    return value


def _mistake(function: str, what: str, hint: str) -> QuantError:
    return QuantError(what, where=function, hint=hint)


def _told(value: object) -> str:
    said = repr(value)
    kind = type(value).__name__
    return f"a {kind}" if len(said) > _LONGEST else said if value is None else f"{said}, of type {kind}"


def _to_a_path(value: Any) -> str:
    if hasattr(value, "resolved_yaml"):
        return "give the recipe's file or name, and its `overrides` with it"
    if hasattr(value, "save"):
        return "write it with `.save(FILE)`, and give the file"
    return ""


def _to_a_list(name: str, value: object) -> str:
    if name != "overrides":
        return f"such as {name}=[{value!r}]" if isinstance(value, str) else ""
    if isinstance(value, dict):
        return f"such as overrides={[f'{key}={one}' for key, one in value.items()]!r}"
    return f"such as overrides=[{value!r}]" if isinstance(value, str) else "such as overrides=['gate.max_drop=0.02']"
