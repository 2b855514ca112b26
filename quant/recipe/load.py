"""Recipe files to typed recipes: `extends:`, overrides, and messages that name the line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ValidationError

from quant.core.arguments import with_checked_arguments
from quant.core.digest import digest_of
from quant.core.files import write_text
from quant.core.shown import Chart, Series, Shown, Table
from quant.errors import RecipeError
from quant.recipe.messages import recipe_error, section_error, shown
from quant.recipe.overrides import override
from quant.recipe.schema import Recipe, Use
from quant.recipe.shipped import find_recipe
from quant.recipe.tree import Location, Placed, locate, merge, rebase
from quant.recipe.yaml_text import read_file, write_yaml

_EXTENDS = "extends"


@dataclass(frozen=True, repr=False)
class LoadedRecipe(Shown):
    """A recipe that was read from a file.

    Args:
        recipe: The typed recipe, with `extends` and overrides applied.
        path: The folder of the recipe; every relative `source` starts here.
        file: The recipe's file.
        tree: The same values with their lines.
    """

    recipe: Recipe
    path: Path
    file: Path
    tree: Placed = field(repr=False)

    def where(self, location: Location) -> str:
        """The place that wrote `location`, as `file.yaml:LINE` or `--set KEY`; of its deepest written parent if it is a default."""
        return str(locate(self.tree, location)[0].mark)

    def resolved_yaml(self) -> str:
        """The whole recipe with all defaults as YAML, in the order of the schema; it loads to the same `Recipe`."""
        return write_yaml(self.recipe.model_dump(mode="json"))

    def as_table(self) -> Table:
        """Every value that the recipe sets, with the place that wrote it."""
        rows = [(".".join(map(str, place)), json.dumps(value, ensure_ascii=False), self.where(place)) for place, value in _leaves(self.tree.plain(), ())]
        said = self.recipe.description
        return Table(f"Recipe {self.recipe.name}", ("value", "is", "written in"), rows, {"description": said} if said else {})

    def as_chart(self) -> Chart:
        """The candidates that it asks for: each scheme on each target."""
        recipe = self.recipe
        schemes = [use.title for use in recipe.listed] or ["auto"]
        targets = [use.title for use in recipe.targets]
        pairs = [(scheme, target) for target in targets for scheme in schemes]
        series = Series("candidates", [target for _, target in pairs], [scheme for scheme, _ in pairs])
        return Chart(f"Candidates of {recipe.name}", "target", "scheme", [series])

    def save(self, path: Path | str) -> None:
        """Write the whole recipe, with all defaults, as YAML; relative sources in it start at this recipe's folder, `path`."""
        write_text(Path(path), self.resolved_yaml())

    @classmethod
    @with_checked_arguments
    def load(cls, path: Path | str) -> LoadedRecipe:
        """As `load_recipe`."""
        return load_recipe(path)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what the recipe says; layout, comments and written-out defaults do not matter."""
        return digest_of(self.recipe.model_dump(mode="json"))


@with_checked_arguments
def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> LoadedRecipe:
    """The recipe at `path`, with what it `extends` and with overrides.

    Args:
        path: A YAML file, or the name of a shipped recipe.
        overrides: `KEY.KEY=VALUE`, applied in their order; values are YAML. A relative `source` in an override starts at
            the current folder, one in a file starts at that file's folder.

    Raises:
        RecipeError: The file or an override cannot be read, or what they say is not a recipe; every mistake is listed
            with its line.
    """
    file = find_recipe(path)
    tree = _with_parents(file)
    for text in overrides:
        tree = override(tree, text)
    _check_version(tree)
    try:
        recipe = Recipe.model_validate_json(json.dumps(tree.plain()), strict=True)
    except ValidationError as error:
        raise recipe_error(tree, error, Recipe, more_keys=(_EXTENDS,)) from error
    return LoadedRecipe(recipe, file.parent, file, tree)


def options_error(loaded: LoadedRecipe, loc: Location, error: ValidationError, options_model: type[BaseModel]) -> RecipeError:
    """What is wrong with the options of the plug-in at `loc`, every mistake with its line.

    Args:
        loaded: The recipe.
        loc: Where the plug-in stands, such as `("schemes", 0)`.
        error: What checking the options said.
        options_model: The plug-in's `Options`.
    """
    return section_error(loaded.tree, loc, error, options_model, more_keys=tuple(Use.model_fields))


def _leaves(value: object, place: Location) -> Iterator[tuple[Location, object]]:
    """Every value that is no mapping and no list of mappings, with its place."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*place, key))
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*place, number))
    else:
        yield place, value


def _with_parents(file: Path) -> Placed:
    """The content of `file` merged over all that it extends, without the `extends` key."""
    chain: list[Path] = []
    layers: list[Placed] = []
    folder = Path()
    while True:
        chain.append(file)
        root = _mapping(file)
        children = dict(root.mapping or {})
        extends = children.pop(_EXTENDS, None)
        layer = Placed(children, root.mark)
        layers.append(layer if folder == Path() else rebase(layer, folder))
        if extends is None:
            break
        file, folder = _parent(file, folder, extends)
        if any(file.resolve() == earlier.resolve() for earlier in chain):
            circle = " -> ".join(path.name for path in [*chain, file])
            raise RecipeError(f"extends goes round in a circle: {circle}", where=str(extends.mark), hint="remove one of the `extends:`")
    merged = layers.pop()
    while layers:
        merged = merge(merged, layers.pop())
    return merged


def _mapping(file: Path) -> Placed:
    root = read_file(file)
    if root.value is None:
        raise RecipeError("the recipe is empty", where=str(root.mark), hint="it starts with `version: 1`")
    if root.mapping is None:
        raise RecipeError(f"expected a mapping (lines of `key: value`), got {shown(root.plain())}", where=str(root.mark))
    return root


def _parent(file: Path, folder: Path, extends: Placed) -> tuple[Path, Path]:
    """The file that `extends` names, and its folder as seen from the first recipe's."""
    name = extends.value
    if not isinstance(name, str) or not name:
        raise RecipeError(f"extends: expected a file or the name of a shipped recipe, got {shown(extends.plain())}", where=str(extends.mark))
    try:
        found = find_recipe(name, folder=file.parent)
    except RecipeError as error:
        raise RecipeError(f"extends {name!r}: {error.what}", where=str(extends.mark), hint=error.hint) from error
    is_beside = found == file.parent / name
    return found, folder / Path(name).parent if is_beside else found.parent.absolute()


def _check_version(tree: Placed) -> None:
    """A recipe of another version may differ in anything, so nothing else is said about it.

    Raises:
        RecipeError: No version, or not 1.
    """
    version = tree.child("version")
    if version is None:
        raise RecipeError("version is missing", where=str(tree.mark), hint="start the recipe with `version: 1`")
    if version.value != 1 or type(version.value) is not int:
        raise RecipeError(f"version {shown(version.plain())} is not known", where=str(version.mark), hint="this toolkit reads `version: 1`")
