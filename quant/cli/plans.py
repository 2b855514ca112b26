"""Commands of mixed precision: profile, plan, apply."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from quant.cli.runs import show_run
from quant.cli.shared import Json, Overrides, Recipe, Trust, app, out, plain

if TYPE_CHECKING:
    from quant.report.mixing import MixingRow

_SHOWN = 20
_NOTHING_PASSES = 1
Target = Annotated[str | None, typer.Option("--target", metavar="NAME", help="One of the recipe's targets; the first when not given.")]


@app.command("profile")
def profile_command(
    recipe: Recipe,
    *,
    target: Target = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the whole profile as JSON, too.")] = None,
    overrides: Overrides = None,
    trust_code: Trust = False,
    as_json: Json = False,
) -> None:
    """What each layer does to the outputs in each format, the most sensitive first."""
    from quant.api import profile  # noqa: PLC0415 - `quant --help` stays quick
    from quant.report.mixing import spread  # noqa: PLC0415
    from quant.report.words import count  # noqa: PLC0415

    if output is not None:
        _refuse_output(output, recipe)
    found = profile(recipe, target=target, overrides=overrides or [], trust_code=trust_code)
    if output is not None:
        found.save(output)
    if as_json:
        sys.stdout.write(found.to_json())
        return
    whole = [effect for effect in found.effects if effect.part == "both"]
    table = Table("layer", "format", f"effect ({found.measure})", "of it weights", box=box.SIMPLE_HEAD)
    for effect in sorted(whole, key=lambda e: (-e.value, e.layer, e.format))[:_SHOWN]:
        share = ""
        if found.knows(effect.layer, effect.format, "weight") and effect.value > 0:
            share = f"{100 * min(found.effect(effect.layer, effect.format, 'weight').value / effect.value, 1):.0f} %"
        table.add_row(plain(effect.layer), effect.format, spread(effect.value, effect.standard_error), share)
    Console().print(table)
    more = f"; {len(whole) - _SHOWN} smaller ones are not shown" if len(whole) > _SHOWN else ""
    out.print(f"{count(len(whole), 'effect')} by {found.found_by} on {count(found.samples, 'search sample')}{more}", highlight=False)
    for note in found.notes:
        out.print(f"[yellow]note:[/yellow] {plain(note)}", highlight=False)


@app.command("plan")
def plan_command(
    recipe: Recipe,
    *,
    target: Target = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The plan, as YAML that may be edited.")] = Path("plan.yaml"),
    profile: Annotated[Path | None, typer.Option("--profile", metavar="FILE", help="Plan by what `quant profile` wrote, and measure no plan.")] = None,
    like: Annotated[Path | None, typer.Option("--like", metavar="FILE", help="With --profile: be predicted to be no worse than this plan.")] = None,
    overrides: Overrides = None,
    trust_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Find the cheapest plan that mixes formats and passes on search samples. Exit codes: 0 found, 1 none passes, 2 wrong input."""
    from quant.api import plan  # noqa: PLC0415 - `quant --help` stays quick
    from quant.report.mixing import mixing_sentence  # noqa: PLC0415

    _refuse_output(output, recipe, profile)
    found = plan(recipe, target=target, profile=profile, like=like, overrides=overrides or [], trust_code=trust_code)
    if found.choices is not None:
        found.save(output)
    if as_json:
        told = {"choices": dict(found.choices) if found.choices is not None else None, "search": found.row.model_dump(mode="json")}
        sys.stdout.write(json.dumps(told, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
        raise typer.Exit(0 if found.choices is not None else _NOTHING_PASSES)
    out.print(f"[bold]{plain(mixing_sentence(found.row))}[/bold]", highlight=False)
    if found.row.steps:
        _show_steps(found.row)
    for left in found.row.left_out:
        out.print(f"[dim]{plain(left.layer)}: {plain(' '.join(left.why))}[/dim]", highlight=False)
    if found.choices is None:
        raise typer.Exit(_NOTHING_PASSES)
    out.print(f"plan: {plain(str(output))}", highlight=False)


def _refuse_output(output: Path, *read: Path | str | None) -> None:
    """Refuse to write over a folder, or over what is read."""
    from quant.core.files import disk_errors, refuse_folder  # noqa: PLC0415 - `quant --help` stays quick
    from quant.errors import RunError  # noqa: PLC0415

    refuse_folder(output)
    with disk_errors(output):
        if output.exists() and any(path is not None and Path(path).exists() and output.samefile(path) for path in read):
            raise RunError("would be written over, and is read", where=str(output), hint="give the name of another file with `--output`")


def _show_steps(row: MixingRow) -> None:
    from quant.report.mixing import step_rows  # noqa: PLC0415 - `quant --help` stays quick

    table = Table("tried", "quantized", "predicted", "measured", f"cost, {row.unit}", "passes", box=box.SIMPLE_HEAD)
    for cells in step_rows(row.steps):
        table.add_row(*map(plain, cells[:-1]))
    Console().print(table)


@app.command("apply")
def apply_command(
    recipe: Recipe,
    plan: Annotated[Path, typer.Option("--plan", metavar="FILE", help="What `quant plan` wrote, or a person edited.")],
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for artifacts and reports (default: runs/NAME).")] = None,
    overrides: Overrides = None,
    trust_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Carry out a plan: quantize, export, audit, evaluate, gate, report."""
    from quant.api import apply, load_recipe  # noqa: PLC0415 - `quant --help` stays quick

    folder = output or Path("runs") / load_recipe(Path(recipe), overrides or []).recipe.name
    show_run(apply(recipe, plan=plan, output=folder, overrides=overrides or [], trust_code=trust_code), as_json=as_json)
