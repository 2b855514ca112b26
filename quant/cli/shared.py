"""What all commands share: the application that they join, the console, their common arguments, exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.core
from rich.console import Console
from rich.markup import escape

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
_INTERRUPTED = 130


class _Group(typer.core.TyperGroup):
    """Commands that say what an interrupted run leaves; by itself typer says no more than "Aborted", with the exit code of a failed gate."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            interrupted()


def plain(text: object) -> str:
    """Text from a recipe, a file or an error as the console prints it: no markup, and nothing that a terminal acts on."""
    from quant.report.words import visible  # noqa: PLC0415 - `quant --help` stays quick

    return escape(visible(str(text)))


def interrupted() -> NoReturn:
    """End an interrupted command with a word about what it leaves."""
    sys.stderr.write("interrupted; what was finished is kept, the same command goes on from there\n")
    sys.exit(_INTERRUPTED)


app = typer.Typer(
    cls=_Group,
    name="quant",
    help="From a trained FP32 model to a quantized artifact with a verdict that can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
out = Console(soft_wrap=True)

Recipe = Annotated[str, typer.Argument(help="A recipe file, or the name of a shipped recipe.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the recipe, as in --set gate.max_drop=0.02.")]
Trust = Annotated[bool, typer.Option("--trust-code", help="Allow code that the recipe names (module:function) to run.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def job_summary(markdown: str) -> None:
    """Add to the summary of the job, where a CI server asks for one: GitHub Actions names a file in `GITHUB_STEP_SUMMARY`."""
    from quant.core.files import disk_errors  # noqa: PLC0415 - `quant --help` stays quick

    named = os.environ.get("GITHUB_STEP_SUMMARY")
    if named:
        with disk_errors(Path(named)), Path(named).open("a", encoding="utf-8") as file:
            file.write(markdown + "\n")
