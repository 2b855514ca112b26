"""Commands about one model file: its layers, and what an engine makes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from quant.cli.shared import EXIT, Json, app, out, plain


@app.command()
def inspect(model: Annotated[Path, typer.Argument(help="An ONNX file.")], as_json: Json = False) -> None:
    """Show a model's inputs, outputs and layers, without running it."""
    from quant.api import inspect as look  # noqa: PLC0415

    found = look(model)
    if as_json:
        sys.stdout.write(found.to_json())
        return
    out.print(f"[bold]{plain(found.path)}[/bold]: opset {found.opset}, {found.parameters:,} weights, {len(found.layers)} layers")
    for title, lines in (("inputs", found.inputs), ("outputs", found.outputs)):
        out.print(f"{title}:")
        for line in lines:
            out.print(f"  {plain(line)}")
    out.print("operators: " + plain(", ".join(f"{op} {count}" for op, count in found.operators.items())))
    table = Table("layer", "op", "weight", "channels along", "weights")
    for layer in found.layers:
        shape = "two activations" if layer.weight is None else "x".join(map(str, layer.weight))
        table.add_row(plain(layer.name), plain(layer.op), shape, "-" if layer.channel_axis is None else f"axis {layer.channel_axis}", f"{layer.parameters:,}")
    out.print(table)
    if found.groups:
        out.print("move together in plans of mixed formats, unless the target runs their sum or concatenation in float:")
        for group in found.groups:
            out.print(f"  {plain(', '.join(group.layers))} ({_bound(group.bonds, group.tensors)})", highlight=False)
    if found.nested:
        out.print(f"note: {found.nested}", highlight=False)


_BONDS = {"reads": "of one tensor", "sum": "added up", "concat": "concatenated"}


def _bound(bonds: tuple[str, ...], tensors: tuple[str, ...]) -> str:
    """What binds the layers of a group, and in which tensors."""
    return plain(f"{', '.join(_BONDS[bond] for bond in bonds)}: {', '.join(tensors)}")


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="An ONNX file, from whatever tool.")],
    *,
    target: Annotated[str, typer.Option("--target", help="The engine that it is for.")] = "tensorrt",
    capability: Annotated[str | None, typer.Option("--capability", help="Compute capability of the GPU: sm89, 8.9 or 89.")] = None,
    rule: Annotated[list[str] | None, typer.Option("--rule", metavar="ID", help="Ask only this rule; may be given more than once.")] = None,
    severity: Annotated[str, typer.Option("--severity", help="The mildest to show: error, silent or warning.")] = "warning",
    fix: Annotated[Path | None, typer.Option("--fix", metavar="FILE", help="Write a copy in which everything that safely can be is mended.")] = None,
    sarif: Annotated[Path | None, typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF 2.1.0, too.")] = None,
    as_json: Json = False,
) -> None:
    """Find what an engine refuses in a model, or takes and quietly runs otherwise. Exit codes: 0 nothing refused, 1 something is, 2 wrong input."""
    from quant.core.files import write_text  # noqa: PLC0415 - `quant --help` stays quick
    from quant.lint.check import check as look  # noqa: PLC0415
    from quant.lint.sarif import sarif as as_sarif  # noqa: PLC0415
    from quant.lint.text import checked_text  # noqa: PLC0415

    found = look(model, target=target, capability=capability, rules=rule or [], severity=severity, mend_to=fix, beside=[] if sarif is None else [sarif])
    if sarif is not None:
        write_text(sarif, as_sarif(found))
    sys.stdout.write(found.to_json() if as_json else checked_text(found))
    raise typer.Exit(EXIT["fail"] if found.count("error") else EXIT["pass"])


@app.command()
def audit(
    artifact: Annotated[Path, typer.Argument(help="Folder of an artifact, as a run leaves it in artifacts/TARGET/SCHEME; or a model file, with --target.")],
    *,
    plan: Annotated[Path | None, typer.Option("--plan", metavar="FILE", help="The precision plan; by default that of the run that the folder lies in.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The engine of a model file that comes without artifact.json.")] = None,
    sarif: Annotated[Path | None, typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF 2.1.0, too.")] = None,
    as_json: Json = False,
) -> None:
    """Show what an engine runs for each layer of a plan. Exit codes: 0 as planned, 1 some layers otherwise, 2 the input is wrong."""
    from quant.api import audit as look  # noqa: PLC0415 - `quant --help` stays quick
    from quant.core.files import refuse_folder, write_text  # noqa: PLC0415
    from quant.validation.sarif import audit_sarif  # noqa: PLC0415

    if sarif is not None:
        refuse_folder(sarif)

    found = look(artifact, plan=plan, target=target)
    if sarif is not None:
        write_text(sarif, audit_sarif(found, str(artifact)))
    if as_json:
        told = {"audit": found.audit.model_dump(mode="json"), "emulated": found.emulated, "wrong": [row.layer for row in found.wrong]}
        sys.stdout.write(json.dumps(told, indent=2, sort_keys=True) + "\n")
        raise typer.Exit(EXIT["fail" if found.wrong else "pass"])
    table = Table("layer", "planned", "runs", "kernel", "agrees")
    for column in table.columns:
        column.overflow = "fold"
    for row in found.audit.rows:
        table.add_row(plain(row.layer), row.planned, row.runs, plain(row.kernel), "yes" if row.agrees else "NO")
    out.print(table)
    if found.emulated is not None and found.audit.disagreements:
        out.print(f"note: {plain(found.emulated)}; it does not count", highlight=False)
    count, wrong = len(found.audit.rows), ", ".join(row.layer for row in found.wrong)
    said = (
        f"{len(found.wrong)} of {count} layers do not run as planned: {wrong}"
        if wrong
        else f"{count - len(found.audit.disagreements)} of {count} layers run as planned"
    )
    out.print(plain(said), highlight=False)
    raise typer.Exit(EXIT["fail" if found.wrong else "pass"])
