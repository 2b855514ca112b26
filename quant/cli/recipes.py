"""Commands about recipes: as they resolve, those that ship, and their schema."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from quant.cli.shared import Json, Overrides, Recipe, app, out, plain
from quant.errors import QuantError, RunError

recipes_app = typer.Typer(help="Recipes that ship with the toolkit.", invoke_without_command=True)
app.add_typer(recipes_app, name="recipes")


@app.command()
def show(recipe: Recipe, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print a recipe resolved: with all that it extends, all overrides and all defaults."""
    from quant.engine.bind import check_options  # noqa: PLC0415
    from quant.recipe.load import load_recipe  # noqa: PLC0415

    loaded = load_recipe(Path(recipe), overrides or [])
    check_options(loaded)
    sys.stdout.write(json.dumps(loaded.recipe.model_dump(mode="json"), indent=2) + "\n" if as_json else loaded.resolved_yaml())


@app.command()
def schema(output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file instead.")] = None, as_json: Json = False) -> None:
    """Print the JSON Schema of recipes, for editors; it is JSON in any case."""
    from quant.core.files import write_text  # noqa: PLC0415
    from quant.engine.bind import REGISTRIES  # noqa: PLC0415
    from quant.recipe.json_schema import json_schema  # noqa: PLC0415

    text = json.dumps(json_schema(REGISTRIES), indent=2, sort_keys=True) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)
        if as_json:
            sys.stdout.write(json.dumps({"schema": str(output)}, indent=2) + "\n")


@recipes_app.callback(invoke_without_command=True)
def recipes(context: typer.Context, as_json: Json = False) -> None:
    """List the recipes that ship with the toolkit."""
    if context.invoked_subcommand is not None:
        return
    from quant.recipe.load import load_recipe  # noqa: PLC0415
    from quant.recipe.shipped import shipped  # noqa: PLC0415

    told = {name: load_recipe(path).recipe.description for name, path in shipped().items()}
    if as_json:
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
        return
    table = Table("recipe", "what it does")
    for name, description in told.items():
        table.add_row(name, plain(description))
    out.print(table)


@recipes_app.command("copy")
def recipes_copy(
    name: Annotated[str, typer.Argument(help="Name of a shipped recipe.")],
    to: Annotated[Path, typer.Argument(help="File or folder to copy it to.")] = Path(),
    as_json: Json = False,
) -> None:
    """Copy a shipped recipe, to start your own from."""
    from quant.core.files import write_bytes, write_text  # noqa: PLC0415
    from quant.core.registry import did_you_mean  # noqa: PLC0415
    from quant.recipe.shipped import SCHEMA_FILE, shipped  # noqa: PLC0415

    known = shipped()
    if name not in known:
        raise QuantError(f"no shipped recipe is called {name!r}", hint=did_you_mean(name, list(known)))
    place = to / f"{name}.yaml" if to.is_dir() else to
    if place.exists():
        raise RunError("exists already", where=str(place), hint="give another name, or remove it first")
    schema = place.parent / SCHEMA_FILE  # the recipe's first line names it, for editors
    if not schema.exists():
        write_text(schema, (known[name].parent / SCHEMA_FILE).read_text(encoding="utf-8"))
    write_bytes(place, known[name].read_bytes())
    if as_json:
        sys.stdout.write(json.dumps({"recipe": str(place), "schema": str(schema)}, indent=2) + "\n")
    else:
        out.print(f"copied to {plain(place)}, with {SCHEMA_FILE} for your editor")
