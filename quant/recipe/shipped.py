"""The recipes that come with the toolkit, and finding a recipe by name or path."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from quant.core.registry import did_you_mean
from quant.errors import RecipeError

_ENDINGS = (".yaml", ".yml")
SCHEMA_FILE = "recipe.schema.json"
"""The JSON Schema of recipes, beside the shipped ones, for editors."""


def shipped() -> Mapping[str, Path]:
    """The shipped recipes: name -> file, sorted by name."""
    files = (Path(str(item)) for item in resources.files("recipes").iterdir() if item.name.endswith(".yaml"))
    return {path.stem: path for path in sorted(files)}


def find_recipe(name_or_path: str | Path, *, folder: Path | None = None) -> Path:
    """The file of a recipe.

    Args:
        name_or_path: A path, or the name of a shipped recipe as `NAME` or `recipes/NAME.yaml`. A file that exists wins.
        folder: Where a relative path starts; the current folder when not given.

    Raises:
        RecipeError: Neither a file nor a shipped recipe; the hint names the nearest ones.
    """
    path = Path(name_or_path) if folder is None else folder / name_or_path
    if path.is_file():
        return path
    known = shipped()
    named = Path(name_or_path)
    is_name = named.parent in {Path(), Path("recipes")} and (named.suffix in {"", *_ENDINGS})
    if is_name and named.name.removesuffix(named.suffix) in known:
        return known[named.name.removesuffix(named.suffix)]
    near = _recipes_in(path if path.is_dir() else path.parent)
    if path.is_dir():
        raise RecipeError("is a folder, not a recipe", where=str(path), hint=f"in it: {', '.join(near[:10])}" if near else "name a YAML file")
    if path.exists():
        return path
    raise RecipeError("no such recipe", where=str(path), hint=did_you_mean(named.name if named.suffix else named.stem, [*near, *known]))


def _recipes_in(folder: Path) -> list[str]:
    try:
        return sorted(item.name for item in folder.iterdir() if item.suffix in _ENDINGS)
    except OSError:  # a folder that is not there, or may not be read, has nothing to propose
        return []
