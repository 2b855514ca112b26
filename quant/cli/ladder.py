"""The command that finds where a model becomes wrong on its way from FP32 to an engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from quant.cli.shared import EXIT, Json, Overrides, Trust, app


@app.command()
def ladder(
    graph: Annotated[Path, typer.Argument(help="An ONNX file, from whatever tool; or a recipe, for all its schemes on all its targets.")],
    *,
    baseline: Annotated[Path | None, typer.Option("--baseline", metavar="FP32.onnx", help="The FP32 model that it was made from.")] = None,
    inputs: Annotated[Path | None, typer.Option("--inputs", metavar="FILE.npz", help="An array for each input; random ones when not given.")] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", help="Take this recipe's evaluation samples and FP32 model.")] = None,
    target: Annotated[list[str] | None, typer.Option("--target", help="Only this engine; may be given more than once.")] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="How many samples, at most.")] = 16,
    overrides: Overrides = None,
    trust_code: Trust = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the ladder, too: as a page (.html), or as .json for `quant report --ladder`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare a graph with FP32 and with its own plain meaning in engine after engine. Exit codes: 0 all agree, 1 one parts, 2 wrong input."""
    asked = {"inputs": inputs, "recipe": recipe, "targets": target or [], "samples": samples, "overrides": overrides or [], "trust_code": trust_code}
    show_ladder(graph, baseline=baseline, as_json=as_json, output=output, **asked)


def show_ladder(graph: Path, *, baseline: Path | None, as_json: bool, output: Path | None = None, **asked: Any) -> NoReturn:
    """Climb, print, and end with the exit code that says whether an engine parts."""
    from quant.api import ladder as climb  # noqa: PLC0415 - `quant --help` stays quick
    from quant.report.ladder import ladder_text  # noqa: PLC0415
    from quant.report.show import check_ladder_file, write_ladder  # noqa: PLC0415

    if output is not None:
        check_ladder_file(output)
    found = climb(graph, baseline=baseline, **asked)
    if output is not None:
        write_ladder(found, output)
    sys.stdout.write(found.to_json() if as_json else ladder_text(found))
    raise typer.Exit(EXIT["pass"] if found.agrees else EXIT["fail"])
