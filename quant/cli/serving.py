"""The command that shows many runs on a local page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from quant.cli.shared import app, out, plain


@app.command()
def serve(
    runs: Annotated[Path, typer.Argument(help="Folder in which runs lie, at any depth.")],
    *,
    port: Annotated[int, typer.Option("--port", help="Port to listen at; 0: one that is free.")] = 0,
    host: Annotated[str, typer.Option("--host", help="Address to listen at; any but this machine's own lets others read the reports.")] = "127.0.0.1",
    as_json: Annotated[bool, typer.Option("--json", help="Print the index of all runs as JSON, and end.")] = False,
) -> None:
    """Show many runs on a local page: a table to sort and filter, trends over time, their reports. Ctrl-C ends it."""
    from quant.report.serving.index import Shelf  # noqa: PLC0415 - `quant --help` stays quick
    from quant.report.serving.server import RunServer, is_loopback  # noqa: PLC0415

    shelf = Shelf(runs)
    if as_json:
        sys.stdout.write(shelf.index().to_json())
        return
    with RunServer(shelf, host=host, port=port) as server:
        if not is_loopback(host):
            sys.stderr.write("warning: everyone who reaches this machine can read these reports; without --host nobody else can\n")
        try:
            out.print(f"{plain(server.url)}  (Ctrl-C ends)", highlight=False)
            server.serve_forever()
        except KeyboardInterrupt:
            pass
