"""What is no path or no text is said by name, before any work; what says that it is a path is one."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quant import api
from quant.core.arguments import with_checked_arguments
from quant.core.documents import Artifact, Document
from quant.errors import QuantError

if TYPE_CHECKING:
    from collections.abc import Sequence


@with_checked_arguments
def told(path: Path | str, *, other: Path | str | None = None, names: Sequence[str] = (), overrides: Sequence[str] = (), scheme: str | None = None) -> object:
    return path, other, names, overrides, scheme


class Folder:
    def __fspath__(self):
        return "runs/a"


WRONG = [
    ({"path": None}, "told: `path` is a path, got None"),
    ({"path": 3}, "told: `path` is a path, got 3, of type int"),
    ({"path": b"x"}, "told: `path` is a path, got b'x', of type bytes"),
    ({"path": ""}, "told: `path` is an empty path"),
    ({"path": "a\0b"}, r"got one with a NUL in it, 'a\\x00b'"),
    ({"path": "a", "other": []}, r"`other` is a path, got \[\], of type list"),
    ({"path": "a", "names": "int8"}, r"`names` is a list of texts, got 'int8', of type str\nhint: such as names=\['int8'\]"),
    ({"path": "a", "overrides": {"gate.max_drop": 0.1}}, r"hint: such as overrides=\['gate.max_drop=0.1'\]"),
    ({"path": "a", "overrides": [1]}, "`overrides` is a list of texts, got 1, of type int"),
    ({"path": "a", "overrides": 4}, "`overrides` is a list of texts, got 4, of type int"),
    ({"path": "a", "scheme": 3}, "`scheme` is text, got 3, of type int"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_an_argument_of_another_type_is_said_by_name(given, said):
    with pytest.raises(QuantError, match=said):
        told(**given)


def test_what_is_right_passes_and_what_is_a_path_by_its_word_becomes_one():
    assert told("a", other=None, names=("x",), overrides=["a=1"]) == ("a", None, ("x",), ["a=1"], None)
    assert told(Folder(), other=Path("b"))[:2] == (Path("runs/a"), Path("b"))


def test_a_missing_argument_is_said_as_python_says_it():
    with pytest.raises(TypeError, match=r"told\(\) missing 1 required positional argument: 'path'"):
        told()


def test_a_document_where_a_file_is_asked_for_is_told_to_be_saved():
    document = Artifact(target="t", scheme="s", main="m", files={}, size_bytes=1)
    with pytest.raises(QuantError, match=r"`path` is a path, got a Artifact\nhint: write it with `\.save\(FILE\)`, and give the file"):
        told(document)
    with pytest.raises(QuantError, match="load: `path` is a path, got 3"):
        Document.load(3)


PUBLIC = [
    (name, parameter.name)
    for name in api.__all__
    if inspect.isfunction(function := getattr(api, name))
    for parameter in inspect.signature(function).parameters.values()
    if re.search(r"\bPath\b", str(parameter.annotation))
]


@pytest.mark.parametrize(("function", "parameter"), PUBLIC)
def test_every_path_of_a_public_function_is_checked_before_any_work(function, parameter):
    called = getattr(api, function)
    rest = {p.name: "x" for p in inspect.signature(called).parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    with pytest.raises(QuantError, match=rf"`{parameter}` is a path, got 3, of type int"):
        called(**rest | {parameter: 3})
