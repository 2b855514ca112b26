"""A recipe before it is typed: a tree of values in which every value remembers the file and line that wrote it.

A *location* is the way from the root to a value, as in `("schemes", 0, "bits")`; in text it is written `schemes.0.bits`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Location = tuple[str | int, ...]
Scalar = str | int | float | bool | None

_SECTIONS_WITH_KIND = {(), ("model",), ("model", "head"), ("data",)}
_SLOTS = {("data", "inputs"), ("calibration", "calibrator")}
_DEEPEST_SPLIT = 3  # data.splits.ROLE
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d][\w.]*$")
_PYTHON_FILE = re.compile(r".*\.py:[^\W\d][\w.]*$")
_KIND_OR_DRIVE = re.compile(r"[a-z][a-z0-9+-]+:|[A-Za-z]:[\\/]|~")


class Mark(NamedTuple):
    """Where a value was written: a file and its line (from 1), or an override such as `--set gate.max_drop` (line 0)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Placed:
    """A value with the place that wrote it; children of mappings and lists are `Placed` as well.

    Args:
        value: A scalar, a mapping or a list.
        mark: For a value of a mapping, the place of its key.
    """

    value: Mapping[str, Placed] | Sequence[Placed] | Scalar
    mark: Mark

    @property
    def mapping(self) -> Mapping[str, Placed] | None:
        """The children by key, if this is a mapping."""
        return self.value if isinstance(self.value, Mapping) else None

    @property
    def items(self) -> Sequence[Placed] | None:
        """The children by index, if this is a list."""
        return self.value if isinstance(self.value, Sequence) and not isinstance(self.value, str) else None

    def plain(self) -> Any:
        """The value alone, as dict, list or scalar."""
        if (mapping := self.mapping) is not None:
            return {key: child.plain() for key, child in mapping.items()}
        if (items := self.items) is not None:
            return [child.plain() for child in items]
        return self.value

    def child(self, part: str | int) -> Placed | None:
        """The child at `part`; None if there is none."""
        if (mapping := self.mapping) is not None:
            return mapping.get(part) if isinstance(part, str) else None
        if (items := self.items) is not None and isinstance(part, int) and 0 <= part < len(items):
            return items[part]
        return None


def locate(root: Placed, location: Location, *, skip_unknown: bool = False) -> tuple[Placed, Location]:
    """The deepest value on the way to `location` that was written, and its own location.

    An index into a mapping is passed over: a list of one may be written as its single item.

    Args:
        root: Where the location starts.
        location: The way to go.
        skip_unknown: Go on after a part that the tree does not have, such as the names a union gives to its members.
    """
    node = root
    found: list[str | int] = []
    for part in location:
        child = node.child(part)
        if child is not None:
            node = child
            found.append(part)
        elif not skip_unknown and not (isinstance(part, int) and node.mapping is not None):
            break
    return node, tuple(found)


def dotted(location: Location) -> str:
    """A location as text, the way `--set` takes it.

    Example:
        >>> dotted(("schemes", 0, "bits"))
        'schemes.0.bits'
    """
    return ".".join(map(str, location))


def shorthand_key(location: Location) -> str | None:
    """The key that a bare value at `location` stands for: `int8` is `{kind: int8}`, a split's `500` is `{samples: 500}`.

    Example:
        >>> shorthand_key(("schemes", 0)), shorthand_key(("data", "splits", "search")), shorthand_key(("model", "source"))
        ('kind', 'samples', None)
    """
    match location:
        case (*_, "kind"):
            return None
        case ("data", "splits", _):
            return "samples"
        case (
            ("data", "inputs", *_)
            | ("data", "splits", _, "data", "inputs", *_)
            | ("calibration", "calibrator", *_)
            | ("schemes",)
            | ("schemes", int(), *_)
            | ("schemes", "among", int(), *_)
            | ("targets", int(), *_)
            | ("evaluation", "metrics", int(), *_)
        ):
            return "kind"
        case _:
            return None


def as_mapping(node: Placed, location: Location) -> Placed:
    """`node` with its shorthand written out, where it has one at `location`."""
    key = shorthand_key(location)
    is_bare = isinstance(node.value, str) if key == "kind" else isinstance(node.value, str | int | float) and not isinstance(node.value, bool)
    return Placed({key: node}, node.mark) if key is not None and is_bare else node


def merge(parent: Placed, child: Placed, location: Location = ()) -> Placed:
    """`child` over `parent`: mappings merge deeply, all else replaces; another `kind` of plug-in drops the parent's options."""
    over, under = child, parent
    if under.mapping is not None and _takes_bare(under, location):
        over = as_mapping(child, location)
    elif over.mapping is not None and _takes_bare(over, location):
        under = as_mapping(parent, location)
    if over.mapping is None or under.mapping is None or changes_kind(under, over, location):
        return child
    merged = dict(under.mapping)
    for key, value in over.mapping.items():
        merged[key] = merge(merged[key], value, (*location, key)) if key in merged else value
    return Placed(merged, child.mark)


def _takes_bare(node: Placed, location: Location) -> bool:
    """Whether a bare value merges with this mapping: it names a kind, or stands where only plug-ins and splits do."""
    return node.child("kind") is not None or _without_role(location) in _SLOTS or (location[:2] == ("data", "splits") and len(location) <= _DEEPEST_SPLIT)


def changes_kind(before: Placed, after: Placed, location: Location) -> bool:
    """Whether two mappings at `location` name different plug-ins, so that the options of one say nothing to the other."""
    if _without_role(location) in _SECTIONS_WITH_KIND:
        return False
    old, new = before.child("kind"), after.child("kind")
    return old is not None and new is not None and old.value != new.value


def _without_role(location: Location) -> Location:
    """The data of one role (`data.splits.calibration.data`) follow the same rules as `data`."""
    return location[3:] if location[:2] == ("data", "splits") and location[3:4] == ("data",) else location


def is_plain_path(source: str) -> bool:
    """Whether a `source:` is a path (or a function of a Python file) that depends on where the recipe lies.

    Example:
        >>> [is_plain_path(s) for s in ("../m.onnx", "make.py:model", "hf:org/name", "package:x==1", "mine.models:make", "~/m.onnx", "/m.onnx")]
        [True, True, False, False, False, False, False]
    """
    if not source or _KIND_OR_DRIVE.match(source) or Path(source).is_absolute():
        return False
    return _PYTHON_FILE.match(source) is not None or _FUNCTION.match(source) is None


def rebase(node: Placed, folder: Path, location: Location = ()) -> Placed:
    """`node` with every relative `source:` path read from `folder`; the `arguments` of a function are left alone."""
    if (mapping := node.mapping) is not None:
        return Placed({key: rebase(child, folder, (*location, key)) for key, child in mapping.items()}, node.mark)
    if (items := node.items) is not None:
        return Placed([rebase(child, folder, (*location, index)) for index, child in enumerate(items)], node.mark)
    is_source = bool(location) and location[-1] == "source" and "arguments" not in location
    if is_source and isinstance(node.value, str) and is_plain_path(source := node.value.strip()):
        return Placed((folder / source).as_posix(), node.mark)
    return node
