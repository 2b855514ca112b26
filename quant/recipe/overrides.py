"""Overrides: `gate.max_drop=0.02` changes one value of a recipe, as `--set` on the command line does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from quant.core.registry import did_you_mean
from quant.errors import RecipeError
from quant.recipe.messages import members
from quant.recipe.schema import Recipe
from quant.recipe.tree import Location, Mark, Placed, as_mapping, changes_kind, dotted, rebase, shorthand_key
from quant.recipe.yaml_text import read_text

_FLAG = "--set "
_ONE_OR_LIST: Location = ("gate",)
_INSIDE = frozenset({"file", "files", "sha256"})


def override(root: Placed, text: str) -> Placed:
    """`root` with one value changed.

    Args:
        root: The recipe as written.
        text: `KEY.KEY=VALUE`; a number is an index into a list, and the value is YAML. A relative `source` starts at the
            current folder, as paths on a command line do. Another `source` drops the `file`, `files` and `sha256` of the
            one before it.

    Raises:
        RecipeError: Not of this form, not YAML, or a place that is not there.
    """
    key, equals, value = text.partition("=")
    location: Location = tuple(int(part) if part.isdecimal() and part.isascii() else part.strip() for part in key.strip().split("."))
    if not equals or "" in location:
        raise RecipeError(f"expected KEY=VALUE, got {text!r}", where=_FLAG.strip(), hint="such as --set gate.max_drop=0.02 or --set calibration.calibrator=mse")
    where = f"{_FLAG}{dotted(location)}"
    if not value.strip():
        raise RecipeError("no value after the =", where=where, hint="write null for nothing, or '' for empty text")
    placed = read_text(value, where, has_lines=False)
    return _assigned(root, location, rebase(placed, Path.cwd(), location), ())


def _assigned(node: Placed, rest: Location, value: Placed, here: Location) -> Placed:
    """`node` (at `here`) with `value` at `rest` below it."""
    if not rest:
        return value
    node = as_mapping(node, here)
    part = rest[0]
    if (items := node.items) is not None:
        index = _index(part, len(items), value.mark, here)
        return Placed([_assigned(item, rest[1:], value, (*here, i)) if i == index else item for i, item in enumerate(items)], node.mark)
    if (mapping := node.mapping) is None:
        raise RecipeError(f"{dotted(here)} is a single value, and has no {part!r} in it", where=str(value.mark))
    if isinstance(part, int) and here == _ONE_OR_LIST:
        _index(part, 1, value.mark, here)
        return _assigned(node, rest[1:], value, here)
    name = str(part)
    child = mapping.get(name)
    if child is None or (child.value is None and len(rest) > 1):
        child = _unwritten((*here, name), value.mark)
    changed = Placed({**mapping, name: _assigned(child, rest[1:], value, (*here, name))}, node.mark)
    if name == "source" and len(rest) == 1 and "arguments" not in here:
        changed = _without_inside(changed, str(child.value), str(value.value))
    if shorthand_key(here) == "kind" and changes_kind(node, changed, here):
        kept = {k: v for k, v in changed.mapping.items() if v.mark.file.startswith(_FLAG)} if changed.mapping else {}
        return Placed(kept, node.mark)
    return changed


def _without_inside(section: Placed, before: str, after: str) -> Placed:
    """A section whose `source` became another: what it says of the inside of the old one goes, unless it was set, too."""
    if section.mapping is None or _package_of(before) == _package_of(after):
        return section
    return Placed({k: v for k, v in section.mapping.items() if k not in _INSIDE or v.mark.file.startswith(_FLAG)}, section.mark)


def _package_of(source: str) -> str:
    """`source` without its version: another version of a package has the same files.

    Example:
        >>> _package_of("package:numpy==2.0"), _package_of("npm:@a/b@1.0"), _package_of("../data")
        ('package:numpy', 'npm:@a/b', '../data')
    """
    return source.partition("==")[0] if source.startswith("package:") else re.sub(r"(?<=.)@[^@/]*$", "", source)


def _index(part: str | int, length: int, mark: Mark, here: Location) -> int:
    if isinstance(part, str):
        raise RecipeError(f"{dotted(here)} is a list, and has no {part!r}", where=str(mark), hint=f"give a number, such as {dotted((*here, 0))}")
    if part >= length:
        what = f"{dotted(here)} has {length} item{'' if length == 1 else 's'}, and no number {part}"
        raise RecipeError(what, where=str(mark), hint=f"numbers start at 0; to make the list longer set all of it: --set {dotted(here)}=[...]")
    return part


def _unwritten(location: Location, mark: Mark) -> Placed:
    """What stands at `location` of a recipe that does not write it: what the default says there, else an empty section.

    Raises:
        RecipeError: The recipe knows no such key.
    """
    value: Any = Recipe
    for depth, part in enumerate(location):
        if isinstance(value, tuple) and value:
            value = value[0]
            if isinstance(part, int):
                continue
        fields = _fields(value)
        if fields is None:
            return Placed({}, mark)
        if part not in fields:
            section = dotted(location[:depth])
            raise RecipeError(f"unknown key {part!r}" + (f" in {section}" if section else ""), where=str(mark), hint=did_you_mean(str(part), list(fields)))
        value = fields[str(part)]
    if isinstance(value, BaseModel):
        return _placed(value.model_dump(mode="json", exclude_defaults=True), mark)
    if isinstance(value, tuple) and location != _ONE_OR_LIST:
        return _placed([item.model_dump(mode="json", exclude_defaults=True) for item in value if isinstance(item, BaseModel)], mark)
    return Placed({}, mark)


def _fields(value: Any) -> dict[str, Any] | None:
    """Key -> default of a section (of its class, where the default is no section); None for what is open or no section."""
    model = value if isinstance(value, type) else type(value)
    if not issubclass(model, BaseModel) or model.model_config.get("extra") == "allow":
        return None
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={}) if value is model else getattr(value, name)
        sections = [member for member in members(field.annotation) if isinstance(member, type) and issubclass(member, BaseModel)]
        found[name] = sections[0] if sections and not isinstance(default, BaseModel | tuple) else default
    return found


def _placed(value: Any, mark: Mark) -> Placed:
    if isinstance(value, dict):
        return Placed({key: _placed(child, mark) for key, child in value.items()}, mark)
    if isinstance(value, list):
        return Placed([_placed(child, mark) for child in value], mark)
    return Placed(value, mark)
