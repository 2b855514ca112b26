"""YAML text to values with lines, and back.

Only what means the same to every reader of YAML is taken: no tags, no merge keys, no key given twice; a bare `yes`, `no`,
`on`, `off` or `010` has to be quoted or written out. `1e-3` is a number.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml

from quant.errors import RecipeError
from quant.recipe.tree import Mark, Placed, Scalar

MAX_BYTES = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 40

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,32}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE, _FALSE = {"true", "True", "TRUE"}, {"false", "False", "FALSE"}
_EITHER = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_TEXT_TAG = "tag:yaml.org,2002:str"


class _Loader(yaml.BaseLoader):
    """Composes nodes, within bounds of depth and number."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self.name = file
        self.depth = 0
        self.count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        self.depth += 1
        self.count += 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(None, None, f"nested more than {MAX_DEPTH} deep", event.start_mark)
        if self.count > MAX_NODES:
            raise yaml.MarkedYAMLError(None, None, f"more than {MAX_NODES} values", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(None, None, f"the tag {event.tag!r} is not read in recipes", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_file(path: Path) -> Placed:
    """The content of a YAML file.

    Raises:
        RecipeError: The file cannot be read, is too large, is not UTF-8, or is not the YAML described in this module.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(data) > MAX_BYTES:
        raise RecipeError(f"larger than {MAX_BYTES >> 20} MiB, which no recipe is", where=str(path), hint="is this the model or the data?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise RecipeError(f"not UTF-8: byte 0x{data[error.start]:02x}", where=f"{path}:{line}", hint="save the file as UTF-8") from error
    return read_text(text, str(path))


def read_text(text: str, file: str, *, has_lines: bool = True) -> Placed:
    """The content of YAML text.

    Args:
        text: The YAML.
        file: What places in it are called.
        has_lines: Whether places have line numbers; an override on the command line has none.

    Raises:
        RecipeError: Not the YAML described in this module; with the line.
    """
    try:
        loader = _Loader(text, file)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise RecipeError(f"a character that YAML does not allow: {chr(int(error.character))!r}", where=str(Mark(file, line if has_lines else 0))) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Mark(file, mark.line + 1 if mark is not None and has_lines else 0)
        raise RecipeError(f"not readable YAML: {error.problem or error.context}", where=str(where), hint=_yaml_hint(error)) from error
    if node is None:
        return Placed(None, Mark(file, 1 if has_lines else 0))
    return _Reading(file, has_lines=has_lines).placed(node, None, 0)


def _yaml_hint(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    if "\\t" in problem:
        return "indent with spaces, not tabs"
    if "mapping values are not allowed" in problem:
        return "quote text that holds a colon and a space; is a line above indented too little?"
    if "cannot start any token" in problem:
        return "quote text that starts with this character"
    if "single document" in str(error.context):
        return "one file holds one recipe; remove the `---` between two"
    if "tag" in problem:
        return "quote text that starts with !"
    return ""


class _Reading:
    """One walk over composed nodes; it counts what aliases repeat, so that a small file cannot become a huge value."""

    def __init__(self, file: str, *, has_lines: bool) -> None:
        self.file = file
        self.has_lines = has_lines
        self.count = 0

    def mark(self, node: yaml.Node) -> Mark:
        return Mark(self.file, node.start_mark.line + 1 if self.has_lines else 0)

    def placed(self, node: yaml.Node, key: yaml.Node | None, depth: int) -> Placed:
        mark = self.mark(key or node)
        self.count += 1
        if self.count > MAX_NODES or depth > MAX_DEPTH:
            what = f"aliases repeat to more than {MAX_NODES} values" if self.count > MAX_NODES else f"nested more than {MAX_DEPTH} deep by an alias"
            raise RecipeError(what, where=str(mark), hint="write the values out instead of using & and *")
        if isinstance(node, yaml.MappingNode):
            return Placed(self.mapping(node, depth), mark)
        if isinstance(node, yaml.SequenceNode):
            return Placed([self.placed(item, None, depth + 1) for item in node.value], mark)
        is_bare = isinstance(node, yaml.ScalarNode) and node.style is None
        return Placed((_scalar if is_bare else _text)(node.value, str(mark)), mark)

    def mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Placed]:
        children: dict[str, Placed] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise RecipeError("a key must be text, not a list or a mapping", where=str(self.mark(key)))
            name, mark = _text(key.value, str(self.mark(key))), self.mark(key)
            if name == "<<" and key.style is None:
                raise RecipeError("merge keys (<<) are not read in recipes", where=str(mark), hint="repeat the keys, or use `extends:`")
            if name in children:
                first = children[name].mark
                raise RecipeError(
                    f"key {name!r} is given twice" + (f" (first on line {first.line})" if first.line else ""), where=str(mark), hint="keep one of them"
                )
            children[name] = self.placed(value, key, depth + 1)
        return children


def _text(text: str, where: str) -> str:
    """`text` with escaped surrogate pairs, as JSON writes them, made whole."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise RecipeError(f"half of a surrogate pair in {text!r}", where=where, hint="write the character itself") from error


def _scalar(text: str, where: str) -> Scalar:
    """The value of a bare (unquoted) word."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text.lower() in _EITHER:
        raise RecipeError(
            f"a bare {text!r} is text to some readers of YAML and {_EITHER[text.lower()]} to others",
            where=where,
            hint=f"write {_EITHER[text.lower()]}, or '{text}' in quotes",
        )
    if _LEADING_ZERO.fullmatch(text):
        raise RecipeError(
            f"a bare {text!r} is octal to some readers of YAML and decimal to others", where=where, hint=f"drop the leading zero, or write '{text}' in quotes"
        )
    if _INTEGER.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    if _NOT_FINITE.fullmatch(text) or (_FLOAT.fullmatch(text) and math.isinf(float(text))):
        raise RecipeError(f"expected a finite number, got {text}", where=where)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _text(text, where)


class _Dumper(yaml.SafeDumper):
    """Quotes what another reader, or this one, would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # the name is PyYAML's
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    if not text.isprintable():  # the other styles fold line ends, of which Unicode has several
        return dumper.represent_scalar(_TEXT_TAG, text, style='"')
    return dumper.represent_scalar(_TEXT_TAG, text, style=None if _is_text(text) else "'")


def _is_text(text: str) -> bool:
    try:
        return _scalar(text, "") == text
    except RecipeError:
        return False


_Dumper.add_representer(str, _represent_text)


def write_yaml(value: Any) -> str:
    """`value` (dicts, lists, scalars) as YAML that `read_text` gives back unchanged; keys stay in their order.

    Example:
        >>> print(write_yaml({"name": "a", "version": "1", "step": 1e-05, "answer": "no"}), end="")
        name: a
        version: '1'
        step: 1.0e-05
        answer: 'no'
    """
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=1 << 16)
