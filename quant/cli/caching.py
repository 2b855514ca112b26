"""The command that shows what the cache holds, and removes what no run will find again."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from quant.cli.shared import Json, app, out, plain


@app.command("cache")
def cache_command(
    *,
    prune: Annotated[bool, typer.Option("--prune", help="Remove results that no run can use: made by other versions of code or libraries.")] = False,
    unused: Annotated[float | None, typer.Option("--unused", metavar="DAYS", min=0, help="With --prune: also those that no run has used for so long.")] = None,
    as_json: Json = False,
) -> None:
    """Show what the cache holds; --prune makes room. Models and data that were fetched stay."""
    from quant.core.cache_folder import cache_folder  # noqa: PLC0415 - `quant --help` stays quick
    from quant.engine.pruning import held  # noqa: PLC0415
    from quant.engine.pruning import prune as remove  # noqa: PLC0415
    from quant.report.words import size  # noqa: PLC0415

    if unused is not None and not prune:
        raise typer.BadParameter("it says what --prune removes: add that", param_hint="--unused")
    folder = cache_folder()
    stages = folder / "stages"
    removed = remove(stages, unused_days=unused) if prune else None
    whole, useless = held(stages), held(stages, useless=True)
    fetched = sum(p.stat().st_size for p in (folder / "sources").rglob("*") if p.is_file() and not p.is_symlink())
    if as_json:
        found = {"folder": str(folder), "sources_bytes": fetched, "results": asdict(whole), "useless": asdict(useless)}
        sys.stdout.write(json.dumps({**found, "removed": asdict(removed) if removed else None}, indent=2, sort_keys=True) + "\n")
        return
    if removed is not None:
        out.print(f"removed: {removed.results} results, {size(removed.size_bytes)}")
    out.print(plain(f"{folder}: {size(fetched)} of models and data; {whole.results} results of stages, {size(whole.size_bytes)}"))
    if useless.results:
        out.print(f"no run can use {useless.results} of them any more, {size(useless.size_bytes)}: `quant cache --prune` removes those")
