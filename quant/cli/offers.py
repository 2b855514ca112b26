"""Commands that say what there is: the plug-ins that recipes can name, and what this machine offers."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.table import Column, Table

from quant.cli.shared import Json, app, out, plain
from quant.errors import QuantError


@app.command("list")
def list_command(
    noun: Annotated[str | None, typer.Argument(help="What to list, as in `quant list target`; everything when not given.")] = None, as_json: Json = False
) -> None:
    """List what recipes can name: schemes, targets, calibrators, metrics and all other plug-ins."""
    from quant.core.registry import did_you_mean  # noqa: PLC0415
    from quant.engine.bind import REGISTRIES  # noqa: PLC0415

    if noun is not None and noun not in REGISTRIES:
        raise QuantError(f"no such kind of plug-in: {noun!r}", hint=did_you_mean(noun, list(REGISTRIES)))
    chosen = {name: registry for name, registry in REGISTRIES.items() if noun in {None, name}}
    if as_json:
        sys.stdout.write(json.dumps({name: list(registry.kinds()) for name, registry in chosen.items()}, indent=2) + "\n")
        return
    for name, registry in chosen.items():
        table = Table(Column("kind", no_wrap=True), "what it is", "options", title=f"{name}s", title_justify="left", title_style="bold")
        for kind in registry:
            plugin = registry.get(kind)
            options = ", ".join(plugin.Options.model_fields)
            table.add_row(kind, plain((plugin.__doc__ or "").strip().splitlines()[0]), plain(options))
        out.print(table)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Show what this machine offers: engines, libraries, CPU features, the cache."""
    from quant.core.cache_folder import cache_folder  # noqa: PLC0415
    from quant.core.parallel import worker_count  # noqa: PLC0415
    from quant.engine.machine import environment  # noqa: PLC0415
    from quant.targets import TARGETS  # noqa: PLC0415

    engines = {}
    for kind in TARGETS:
        here = TARGETS.make(kind).available()
        engines[kind] = "; ".join(filter(None, (f"version {here.version}", here.note))) if here.available else f"not available: {here.reason} ({here.install})"
    machine = {**environment(), "threads": str(worker_count())}
    found = {"targets": engines, "environment": machine, "cache": str(cache_folder())}
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2, sort_keys=True) + "\n")
        return
    table = Table("what", "found")
    for kind, text in engines.items():
        table.add_row(f"target {kind}", plain(text))
    for name, text in machine.items():
        table.add_row(name, plain(text))
    table.add_row("cache", plain(found["cache"]))
    out.print(table)
