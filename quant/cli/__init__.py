"""The command line, one file for each family of commands. Exit codes: 0 pass, 1 fail, 2 the input is wrong, 3 inconclusive, 70 a bug of ours."""

from __future__ import annotations

import io
import sys
import traceback

from rich.console import Console

from quant.cli import runs, plans, validation, reports, serving, recipes, models, ladder, offers, caching  # isort: skip - the order in which `quant --help` lists the commands
from quant.cli.shared import EXIT, app, interrupted, plain
from quant.errors import QuantError

__all__ = ["EXIT", "app", "caching", "ladder", "main", "models", "offers", "plans", "recipes", "reports", "runs", "serving", "validation"]

_INPUT_IS_WRONG = 2
_BUG = 70  # EX_SOFTWARE of sysexits.h


def main() -> None:
    """Run the command line; a user's mistake is printed bare, a bug of ours keeps its traceback."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no arrow must not turn a verdict into a crash, with the exit code of a failure
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except QuantError as error:
        Console(stderr=True, soft_wrap=True).print(f"[red]error:[/red] {plain(error)}", highlight=False)
        sys.exit(_INPUT_IS_WRONG)
    except KeyboardInterrupt:  # before typer has found the command
        interrupted()
    except Exception:  # noqa: BLE001 - shown whole; Python's own exit code for it is 1, which a CI job would read as a failed gate
        traceback.print_exc()
        sys.stderr.write("this is a bug of the toolkit, not of your input; please report it with the lines above\n")
        sys.exit(_BUG)
