"""Commands that do the work of a recipe, whole or in part, and compare what came of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from quant.cli.shared import EXIT, Json, Overrides, Recipe, Trust, app, job_summary, out, plain
from quant.errors import QuantError, RunError

if TYPE_CHECKING:
    from quant.engine.run import Run


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

    folder = output or Path("runs") / load_recipe(Path(recipe), overrides or []).recipe.name
    show_run(run(Path(recipe), output=folder, overrides=overrides or [], trust_code=trust_code), as_json=as_json)


def show_run(done: Run, *, as_json: bool) -> NoReturn:
    """Show a finished run, and end with its verdict as the exit code."""
    from quant.report.markdown import markdown  # noqa: PLC0415
    from quant.report.mixing import mixing_sentence  # noqa: PLC0415
    from quant.report.speed import choice_sentences  # noqa: PLC0415
    from quant.report.table import candidate_notes, candidates_table  # noqa: PLC0415

    job_summary(markdown(done.report))
    if as_json:
        sys.stdout.write(done.report.to_json())
    else:
        for note in (*done.report.model.notes, *done.report.data.notes):
            out.print(f"[yellow]note:[/yellow] {plain(note)}")
        out.print(f"[bold]{plain(done.report.sentence)}[/bold]")
        Console().print(candidates_table(done.report))
        for choice in choice_sentences(done.report):
            out.print(plain(choice), highlight=False)
        for row in done.report.timings.mixing:
            out.print(f"mixed on {plain(row.target)}: {plain(mixing_sentence(row))}", highlight=False)
        for note in candidate_notes(done.report):
            out.print(f"[dim]{plain(note)}[/dim]", highlight=False)
        out.print(f"report: {plain(done.folder / 'report.html')}")
    raise typer.Exit(EXIT[done.report.verdict])


@app.command()
def calibrate(
    recipe: Recipe,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the calibration table.")],
    overrides: Overrides = None,
    trust_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Run only the calibration of a recipe and write its table."""
    from quant.api import calibrate as gather  # noqa: PLC0415
    from quant.core.files import whole_folder  # noqa: PLC0415

    table = gather(recipe, overrides=overrides or [], trust_code=trust_code)
    if output.exists() and (not output.is_dir() or (any(output.iterdir()) and not (output / "table.json").exists())):
        raise RunError("holds something else than a calibration table", where=str(output), hint="give an empty or a new folder with --output")
    with whole_folder(output) as part:
        table.save(part)
    if as_json:
        told = {"table": str(output / "table.json"), "sha256": table.digest, "samples": table.samples, "tensors": sorted(table.statistics)}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        out.print(f"{len(table.statistics)} tensors over {table.samples} samples: {plain(output / 'table.json')}")


@app.command()
def evaluate(recipe: Recipe, overrides: Overrides = None, trust_code: Trust = False, as_json: Json = False) -> None:
    """Evaluate only the FP32 model of a recipe."""
    from quant.api import evaluate as measure  # noqa: PLC0415

    values = measure(recipe, overrides=overrides or [], trust_code=trust_code)
    if as_json:
        sys.stdout.write(json.dumps(dict(values), indent=2, sort_keys=True) + "\n")
        return
    for name, value in values.items():
        out.print(f"{plain(name)}: {value:.6g}")


@app.command()
def compare(
    run_a: Annotated[Path, typer.Argument(help="Folder of the older run; or an FP32 model.")],
    run_b: Annotated[Path, typer.Argument(help="Folder of the newer run; or the graph that was made of the model.")],
    allow: Annotated[list[str] | None, typer.Option(metavar="ASPECT", help="What may get worse: time, say. Can be given again.")] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs: accuracy, speed, size, verdicts, formats, ranges. Exit code 1: something got worse.

    Of two ONNX files: `quant ladder B --baseline A`.
    """
    if run_a.suffix == run_b.suffix == ".onnx":
        from quant.cli.ladder import show_ladder  # noqa: PLC0415 - its command comes after these in `quant --help`

        show_ladder(run_b, baseline=run_a, as_json=as_json)
    from quant.api import compare as compare_reports  # noqa: PLC0415
    from quant.api import load_report  # noqa: PLC0415
    from quant.core.registry import did_you_mean  # noqa: PLC0415
    from quant.report.compare_text import comparison_text  # noqa: PLC0415
    from quant.report.regressions import ASPECTS  # noqa: PLC0415

    for aspect in allow or []:
        if aspect not in ASPECTS:
            raise QuantError(f"no such aspect of a run: {aspect!r}", where="--allow", hint=did_you_mean(aspect, list(ASPECTS)))
    found = compare_reports(load_report(run_a), load_report(run_b))
    sys.stdout.write(found.to_json() if as_json else comparison_text(found))
    if any(regression.aspect not in (allow or []) for regression in found.regressions):
        raise typer.Exit(EXIT["fail"])
