"""The command that makes pages of runs that are over, and shows them."""

from __future__ import annotations

import json
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from quant.cli.shared import Json, app
from quant.errors import RunError

_PAIR = 2


@app.command("report")
def report_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folder of a run, or its report.json; two of them with --compare.", show_default=False)],
    *,
    compare: Annotated[bool, typer.Option("--compare", help="Show two runs side by side, the older one first.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it (default: the run's own page, or beside it).")
    ] = None,
    ladder: Annotated[Path | None, typer.Option("--ladder", metavar="FILE", help="A ladder of `quant ladder --output FILE.json`, to join the page.")] = None,
    as_json: Json = False,
) -> None:
    """Make the page of a run anew from its report.json, or one of two runs side by side, and print where it lies."""
    from quant.report.show import show_comparison, show_run  # noqa: PLC0415 - `quant --help` stays quick

    given = " ".join(map(str, runs))
    if compare and len(runs) != _PAIR:
        raise RunError(f"--compare takes two runs, not {len(runs)}", where=given, hint="quant report --compare RUN_A RUN_B")
    if not compare and len(runs) != 1:
        raise RunError(f"a page is made of one run, not of {len(runs)}", where=given, hint="two of them are shown side by side with --compare")
    if compare and ladder is not None:
        raise RunError("a ladder joins the page of one run", where=str(ladder), hint="leave out --compare or --ladder")
    place = show_comparison(runs[0], runs[1], output=output) if compare else show_run(runs[0], output=output, ladder=ladder)
    sys.stdout.write(json.dumps({"page": str(place)}, indent=2) + "\n" if as_json else f"{place}\n")
    if open_it and not webbrowser.open(place.resolve().as_uri()):
        sys.stderr.write("no browser was found here; open the page by hand\n")
