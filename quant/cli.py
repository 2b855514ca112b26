"""The command line. Exit codes: 0 pass, 1 fail, 2 the input is wrong, 3 inconclusive, 70 a bug of ours."""

from __future__ import annotations

import io
import json
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.core
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quant.errors import QuantError, RunError

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
_INPUT_IS_WRONG = 2
_BUG = 70  # EX_SOFTWARE of sysexits.h

_INTERRUPTED = 130


class _Group(typer.core.TyperGroup):
    """Commands that say what an interrupted run leaves; by itself typer says no more than "Aborted", with the exit code of a failed gate."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _interrupted()


def _interrupted() -> NoReturn:
    sys.stderr.write("interrupted; what was finished is kept, the same command goes on from there\n")
    sys.exit(_INTERRUPTED)


app = typer.Typer(
    cls=_Group,
    name="quant",
    help="From a trained FP32 model to a quantized artifact with a verdict that can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
recipes_app = typer.Typer(help="Recipes that ship with the toolkit.", invoke_without_command=True)
app.add_typer(recipes_app, name="recipes")
out = Console(soft_wrap=True)

Recipe = Annotated[str, typer.Argument(help="A recipe file, or the name of a shipped recipe.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the recipe, as in --set gate.max_drop=0.02.")]
Trust = Annotated[bool, typer.Option("--trust-code", help="Allow code that the recipe names (module:function) to run.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("run")
def run_command(
    recipe: Recipe,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for artifacts and reports (default: runs/NAME).")] = None,
    overrides: Overrides = None,
    trust_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Run a recipe: calibrate, quantize, export, audit, evaluate, gate, report."""
    from quant.api import load_recipe, run  # noqa: PLC0415 - `quant --help` stays quick
    from quant.report.table import candidate_notes, candidates_table  # noqa: PLC0415

    folder = output or Path("runs") / load_recipe(Path(recipe), overrides or []).recipe.name
    done = run(Path(recipe), output=folder, overrides=overrides or [], trust_code=trust_code)
    if as_json:
        sys.stdout.write(done.report.to_json())
    else:
        for note in (*done.report.model.notes, *done.report.data.notes):
            out.print(f"[yellow]note:[/yellow] {escape(note)}")
        out.print(f"[bold]{escape(done.report.sentence)}[/bold]")
        Console().print(candidates_table(done.report))
        for note in candidate_notes(done.report):
            out.print(f"[dim]{escape(note)}[/dim]", highlight=False)
        out.print(f"report: {escape(str(folder / 'report.html'))}")
    raise typer.Exit(EXIT[done.report.verdict])


@app.command()
def show(recipe: Recipe, overrides: Overrides = None) -> None:
    """Print a recipe resolved: with all that it extends, all overrides and all defaults."""
    from quant.engine.bind import check_options  # noqa: PLC0415
    from quant.recipe.load import load_recipe  # noqa: PLC0415

    loaded = load_recipe(Path(recipe), overrides or [])
    check_options(loaded)
    sys.stdout.write(loaded.resolved_yaml())


@app.command()
def schema(output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file instead.")] = None) -> None:
    """Print the JSON Schema of recipes, for editors."""
    from quant.core.files import write_text  # noqa: PLC0415
    from quant.engine.bind import REGISTRIES  # noqa: PLC0415
    from quant.recipe.json_schema import json_schema  # noqa: PLC0415

    text = json.dumps(json_schema(REGISTRIES), indent=2, sort_keys=True) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)


@app.command("list")
def list_command(
    noun: Annotated[str | None, typer.Argument(help="scheme, target, calibrator, metric or processor; all when not given.")] = None, as_json: Json = False
) -> None:
    """List what recipes can name: schemes, targets, calibrators, metrics, processors."""
    from quant.core.registry import did_you_mean  # noqa: PLC0415
    from quant.engine.bind import REGISTRIES  # noqa: PLC0415

    if noun is not None and noun not in REGISTRIES:
        raise QuantError(f"no such kind of plug-in: {noun!r}", hint=did_you_mean(noun, list(REGISTRIES)))
    chosen = {name: registry for name, registry in REGISTRIES.items() if noun in {None, name}}
    if as_json:
        sys.stdout.write(json.dumps({name: list(registry.kinds()) for name, registry in chosen.items()}, indent=2) + "\n")
        return
    for name, registry in chosen.items():
        table = Table("kind", "what it is", "options", title=f"{name}s", title_justify="left", title_style="bold")
        for kind in registry:
            plugin = registry.get(kind)
            options = ", ".join(plugin.Options.model_fields)
            table.add_row(kind, escape((plugin.__doc__ or "").strip().splitlines()[0]), escape(options))
        out.print(table)


@app.command()
def inspect(model: Annotated[Path, typer.Argument(help="An ONNX file.")], as_json: Json = False) -> None:
    """Show a model's inputs, outputs and layers, without running it."""
    from quant.api import inspect as look  # noqa: PLC0415

    found = look(model)
    if as_json:
        sys.stdout.write(found.to_json())
        return
    out.print(f"[bold]{escape(found.path)}[/bold]: opset {found.opset}, {found.parameters:,} weights, {len(found.layers)} layers")
    for title, lines in (("inputs", found.inputs), ("outputs", found.outputs)):
        out.print(f"{title}:")
        for line in lines:
            out.print(f"  {escape(line)}")
    out.print("operators: " + escape(", ".join(f"{op} {count}" for op, count in found.operators.items())))
    table = Table("layer", "op", "weight", "channels along", "weights")
    for layer in found.layers:
        shape = "two activations" if layer.weight is None else "x".join(map(str, layer.weight))
        table.add_row(escape(layer.name), layer.op, shape, "-" if layer.channel_axis is None else f"axis {layer.channel_axis}", f"{layer.parameters:,}")
    out.print(table)


@app.command()
def calibrate(
    recipe: Recipe,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the calibration table.")],
    overrides: Overrides = None,
    trust_code: Trust = False,
) -> None:
    """Run only the calibration of a recipe and write its table."""
    from quant.api import calibrate as gather  # noqa: PLC0415
    from quant.core.files import whole_folder  # noqa: PLC0415

    table = gather(recipe, overrides=overrides or [], trust_code=trust_code)
    if output.exists() and (not output.is_dir() or (any(output.iterdir()) and not (output / "table.json").exists())):
        raise RunError("holds something else than a calibration table", where=str(output), hint="give an empty or a new folder with --output")
    with whole_folder(output) as part:
        table.save(part)
    out.print(f"{len(table.statistics)} tensors over {table.samples} samples: {escape(str(output / 'table.json'))}")


@app.command()
def evaluate(recipe: Recipe, overrides: Overrides = None, trust_code: Trust = False, as_json: Json = False) -> None:
    """Evaluate only the FP32 model of a recipe."""
    from quant.api import evaluate as measure  # noqa: PLC0415

    values = measure(recipe, overrides=overrides or [], trust_code=trust_code)
    if as_json:
        sys.stdout.write(json.dumps(values, indent=2, sort_keys=True) + "\n")
        return
    for name, value in values.items():
        out.print(f"{escape(name)}: {value:.6g}")


@app.command()
def compare(
    run_a: Annotated[Path, typer.Argument(help="Folder of the older run.")],
    run_b: Annotated[Path, typer.Argument(help="Folder of the newer run.")],
    as_json: Json = False,
) -> None:
    """Compare two runs: accuracy, speed, size, verdicts, formats, ranges."""
    from quant.api import compare as compare_reports  # noqa: PLC0415
    from quant.api import load_report  # noqa: PLC0415
    from quant.report.compare_text import comparison_text  # noqa: PLC0415

    found = compare_reports(load_report(run_a), load_report(run_b))
    sys.stdout.write(found.to_json() if as_json else comparison_text(found))


@recipes_app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """List the recipes that ship with the toolkit."""
    if context.invoked_subcommand is not None:
        return
    from quant.recipe.load import load_recipe  # noqa: PLC0415
    from quant.recipe.shipped import shipped  # noqa: PLC0415

    table = Table("recipe", "what it does")
    for name, path in shipped().items():
        table.add_row(name, escape(load_recipe(path).recipe.description))
    out.print(table)


@recipes_app.command("copy")
def recipes_copy(
    name: Annotated[str, typer.Argument(help="Name of a shipped recipe.")], to: Annotated[Path, typer.Argument(help="File or folder to copy it to.")] = Path()
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
    out.print(f"copied to {escape(str(place))}, with {SCHEMA_FILE} for your editor")


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
        table.add_row(f"target {kind}", escape(text))
    for name, text in machine.items():
        table.add_row(name, escape(text))
    table.add_row("cache", escape(str(found["cache"])))
    out.print(table)


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="An ONNX file, from whatever tool.")],
    *,
    target: Annotated[str, typer.Option("--target", help="The engine that it is for.")] = "tensorrt",
    capability: Annotated[str | None, typer.Option("--capability", help="Compute capability of the GPU, as in sm89.")] = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", metavar="ID", help="Ask only this rule; may be given more than once.")] = None,
    severity: Annotated[str, typer.Option("--severity", help="The mildest to show: error, silent or warning.")] = "warning",
    fix: Annotated[Path | None, typer.Option("--fix", metavar="FILE", help="Write a copy in which everything that safely can be is mended.")] = None,
    sarif: Annotated[Path | None, typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF 2.1.0, too.")] = None,
    as_json: Json = False,
) -> None:
    """Find what an engine refuses in a model, or takes and quietly runs otherwise. Exit codes: 0 nothing refused, 1 something is."""
    from quant.core.files import write_text  # noqa: PLC0415 - `quant --help` stays quick
    from quant.lint.check import check as look  # noqa: PLC0415
    from quant.lint.sarif import sarif as as_sarif  # noqa: PLC0415
    from quant.lint.text import checked_text  # noqa: PLC0415

    found = look(model, target=target, capability=capability, rules=rule or [], severity=severity, mend_to=fix)
    if sarif is not None:
        write_text(sarif, as_sarif(found))
    sys.stdout.write(found.to_json() if as_json else checked_text(found))
    raise typer.Exit(EXIT["fail"] if found.count("error") else EXIT["pass"])


def main() -> None:
    """Run the command line; a user's mistake is printed bare, a bug of ours keeps its traceback."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no arrow must not turn a verdict into a crash, with the exit code of a failure
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except QuantError as error:
        Console(stderr=True, soft_wrap=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(_INPUT_IS_WRONG)
    except KeyboardInterrupt:  # before typer has found the command
        _interrupted()
    except Exception:  # noqa: BLE001 - shown whole; Python's own exit code for it is 1, which a CI job would read as a failed gate
        traceback.print_exc()
        sys.stderr.write("this is a bug of the toolkit, not of your input; please report it with the lines above\n")
        sys.exit(_BUG)


if __name__ == "__main__":
    main()
