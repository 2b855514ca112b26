"""What is wrong with a recipe, in the words of someone who writes YAML: one `file:line: what` for each mistake."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from quant.core.registry import did_you_mean
from quant.errors import RecipeError
from quant.recipe.schema import NAME, SHA256
from quant.recipe.tree import Location, Mark, Placed, dotted, locate

_SHOWN = 60

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "none_required": "null",
    "dict_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "too_short": "at least {min_length} in the list",
    "too_long": "at most {max_length} in the list",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
}
_PATTERNS = {
    NAME: "lower-case letters, digits and hyphens, such as my-model",
    SHA256: "64 hexadecimal digits in lower case",
}
_MODELS = {
    "Use": "a name, or a mapping with `kind`",
}


class _Problem(NamedTuple):
    mark: Mark
    what: str
    hint: str


def recipe_error(root: Placed, error: ValidationError, model: type[BaseModel], *, more_keys: Sequence[str] = ()) -> RecipeError:
    """Every mistake of a recipe in one error.

    Args:
        root: The recipe as written.
        error: What pydantic found in it.
        model: The model that it was checked against.
        more_keys: Further keys that may be written at the top.
    """
    return _joined(_problems(root, (), error, model, more_keys))


def section_error(root: Placed, location: Location, error: ValidationError, model: type[BaseModel], *, more_keys: Sequence[str] = ()) -> RecipeError:
    """Every mistake in the part of a recipe at `location`, in one error; the arguments are as in `recipe_error`."""
    return _joined(_problems(root, location, error, model, more_keys))


def _problems(root: Placed, base: Location, error: ValidationError, model: type[BaseModel], more_keys: Sequence[str]) -> list[_Problem]:
    node, written = locate(root, base)
    start = node if written == base else Placed(None, node.mark)
    groups: dict[Location, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        tidy = locate(start, detail["loc"], skip_unknown=True)[1]
        if detail["type"] == "missing" or (detail["type"] == "extra_forbidden" and not tidy):
            tidy = (*tidy, detail["loc"][-1])
        groups.setdefault(tidy, []).append(detail)
    problems = []
    for tidy, details in groups.items():
        kept = [d for d in details if d["type"] != "too_short" or len(details) == 1]
        if not _has_below(groups, tidy):
            keys = (*_keys_at(model, kept[0]["loc"][:-1]), *(more_keys if len(tidy) == 1 else ()))
            problems.append(_problem(base, tidy, kept, locate(start, tidy)[0].mark, keys))
    return problems


def _has_below(groups: Iterable[Location], location: Location) -> bool:
    """Whether something further in is wrong: what pydantic says of the whole (too few valid items, no member of a union) follows from it."""
    return any(len(other) > len(location) and other[: len(location)] == location for other in groups)


def _problem(base: Location, tidy: Location, details: Sequence[ErrorDetails], mark: Mark, keys: Sequence[str]) -> _Problem:
    first = details[0]
    section = dotted((*base, *tidy[:-1]))
    if first["type"] == "missing":
        return _Problem(mark, f"missing key {tidy[-1]!r}" + (f" in {section}" if section else ""), _missing_hint(first, keys))
    if first["type"] == "extra_forbidden":
        return _Problem(
            mark, f"unknown key {str(tidy[-1])!r}" + (f" in {section}" if section else ""), did_you_mean(str(tidy[-1]), keys) or "it takes no options"
        )
    name = dotted((*base, *tidy)) or "the recipe"
    expected = list(dict.fromkeys(words for d in details if (words := _expected(d)) is not None))
    if "a number" in expected and "a whole number" in expected:
        expected.remove("a whole number")
    if not expected:
        whole = first["type"] in {"value_error", "assertion_error"} and isinstance(first["input"], Mapping | list | tuple)
        return _Problem(
            mark, f"{name}: {_message(first)}" + ("" if whole else f", got {shown(first['input'])}"), ""
        )  # a check of our own says what is wrong in it
    return _Problem(mark, f"{name}: expected {_either(expected)}, got {shown(first['input'])}", _value_hint(first, expected))


def _expected(detail: ErrorDetails) -> str | None:
    context = detail.get("ctx", {})
    if detail["type"] in {"model_type", "model_attributes_type"}:
        return _MODELS.get(str(context.get("class_name")), "a mapping")
    if detail["type"] == "string_pattern_mismatch" and context["pattern"] in _PATTERNS:
        return _PATTERNS[context["pattern"]]
    words = _EXPECTED.get(detail["type"])
    return words.format(**context) if words is not None else None


def _message(detail: ErrorDetails) -> str:
    if detail["type"] in {"value_error", "assertion_error"}:
        return str(detail["ctx"]["error"])
    message = str(detail["msg"])
    return message[:1].lower() + message[1:]


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _missing_hint(detail: ErrorDetails, keys: Sequence[str]) -> str:
    """For sections that are open, where a misspelled key is no mistake of its own: the key that may be meant."""
    if detail["loc"][-1] != "kind" or not isinstance(detail["input"], Mapping):
        return ""
    near = difflib.get_close_matches("kind", [str(key) for key in detail["input"] if key not in keys], n=1)
    return f"is it {near[0]!r} there?" if near else ""


def _value_hint(detail: ErrorDetails, expected: Sequence[str]) -> str:
    value = detail["input"]
    if detail["type"] in {"literal_error", "enum"} and isinstance(value, str):
        near = did_you_mean(value, re.findall(r"'([^']*)'", str(detail["ctx"]["expected"])))
        return near if near.startswith("did") else ""
    if "text" in expected and isinstance(value, bool | int | float):
        return f"in quotes it is text: '{shown(value)}'"
    if detail["type"] in {"list_type", "tuple_type"} and isinstance(value, str | int | float):
        return f"a list of one is written [{value}]"
    if detail["type"] in {"int_type", "float_type"} and isinstance(value, str) and re.fullmatch(r"[-+]?[0-9_.]+", value):
        return "write the number without quotes and underscores"
    return ""


def shown(value: object) -> str:
    """A value as a message shows it, cut to a readable length.

    Example:
        >>> shown(True), shown(None), shown("abc"), shown([1, 2]), shown({"a": 1})
        ('true', 'nothing (null)', "'abc'", 'a list', 'a mapping')
    """
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _joined(problems: Sequence[_Problem]) -> RecipeError:
    """One error for all problems, in the order of the files' lines; hints go inline when there are several."""
    ordered = sorted(problems, key=lambda p: (p.mark.file, p.mark.line))
    first, rest = ordered[0], ordered[1:]
    if not rest:
        return RecipeError(first.what, where=str(first.mark), hint=first.hint)
    lines = [p.what + (f" ({p.hint})" if p.hint else "") for p in ordered]
    what = "\n".join([lines[0], *(f"{p.mark}: {line}" for p, line in zip(rest, lines[1:], strict=True))])
    return RecipeError(what, where=str(first.mark))


def _keys_at(model: type[BaseModel], location: Sequence[str | int]) -> tuple[str, ...]:
    """The keys that the section at `location` of a model knows."""
    types = [model]
    for part in location:
        types = [inner for t in types for inner in _step(t, part)] or types
    return tuple(key for t in types if isinstance(t, type) and issubclass(t, BaseModel) for key in t.model_fields)


def _step(annotation: Any, part: str | int) -> list[Any]:
    """The types below `annotation` at `part`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(part) if isinstance(part, str) else None
        return members(field.annotation) if field is not None else []
    origin, arguments = get_origin(annotation), get_args(annotation)
    if not isinstance(origin, type):
        return []
    if issubclass(origin, Mapping):
        return members(arguments[-1])
    return [member for argument in arguments if argument is not Ellipsis for member in members(argument)] if isinstance(part, int) else []


def members(annotation: Any) -> list[Any]:
    """The types that an annotation allows one of, with `Annotated` and unions taken apart."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return members(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        return [member for argument in get_args(annotation) for member in members(argument)]
    return [annotation]
