"""Protobuf's text format, as far as a configuration needs it: the same bytes for the same content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Field = Any
Message = Mapping[str, Field]
_INDENT = "  "


class Word(str):
    """The name of an enum's value, which stands without quotes."""

    __slots__ = ()


def as_text(message: Message, *, depth: int = 0) -> str:
    """`message` in protobuf's text format, one field a line, in the order given; a list of messages is a repeated field.

    Args:
        message: Field -> value. A mapping is a message within; a list of mappings a repeated one; a list of anything else is written in
            brackets, and an empty list is left out.
        depth: How far to indent.

    Example:
        >>> print(as_text({"name": "net", "input": [{"name": "x", "data_type": Word("TYPE_FP32"), "dims": [3, -1]}], "flag": True}), end="")
        name: "net"
        input {
          name: "x"
          data_type: TYPE_FP32
          dims: [ 3, -1 ]
        }
        flag: true
    """
    pad = _INDENT * depth
    lines = []
    for name, value in message.items():
        for one in _repeated(value):
            if isinstance(one, Mapping):
                lines.append(f"{pad}{name} {{\n{as_text(one, depth=depth + 1)}{pad}}}\n" if one else f"{pad}{name} {{}}\n")
            elif isinstance(one, list):
                lines.append(f"{pad}{name}: [ {', '.join(map(_scalar, one))} ]\n")
            else:
                lines.append(f"{pad}{name}: {_scalar(one)}\n")
    return "".join(lines)


def entries(values: Mapping[str, Field]) -> list[Message]:
    """A protobuf map: one entry for each key."""
    return [{"key": key, "value": value} for key, value in values.items()]


def _repeated(value: Field) -> list[Field]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            return []
        return list(value) if isinstance(value[0], Mapping) else [list(value)]
    return [value]


def _scalar(value: object) -> str:
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, str) else str(value)
