"""Commands that come before a deploy: validate, verify, sign."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from quant.cli.shared import EXIT, Json, Overrides, Trust, app, job_summary, out, plain


@app.command()
def validate(
    path: Annotated[Path, typer.Argument(help="Folder of a run; or, with --baseline, of an artifact.")],
    *,
    candidate: Annotated[str | None, typer.Option("--candidate", metavar="NAME", help="Only this one: SCHEME, or 'SCHEME on TARGET'.")] = None,
    baseline: Annotated[Path | None, typer.Option("--baseline", metavar="MODEL", help="The FP32 model that an artifact is held to.")] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="RECIPE", help="The recipe whose data, gates and limits count; the run's own if not given.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.1, help="Seconds of sustained load (default: the recipe's limits.load_s).")] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, max=256, help="Threads under load (default: the recipe's limits.load_threads).")] = None,
    work: Annotated[Path | None, typer.Option("--work", metavar="FOLDER", help="Keep here what is made anew, for the next validation.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write the findings as JUnit XML, too.")] = None,
    sarif: Annotated[Path | None, typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF 2.1.0, too.")] = None,
    overrides: Overrides = None,
    trust_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Make a run's artifact anew and hold the run to it, before a deploy. Exit codes: 0 pass, 1 fail, 2 wrong input, 3 inconclusive."""
    from quant.api import validate as look  # noqa: PLC0415 - `quant --help` stays quick
    from quant.core.files import refuse_folder, write_text  # noqa: PLC0415
    from quant.validation.junit import validation_junit  # noqa: PLC0415
    from quant.validation.sarif import validation_sarif  # noqa: PLC0415
    from quant.validation.text import validation_markdown, validation_text  # noqa: PLC0415

    for file in (junit, sarif):
        if file is not None:
            refuse_folder(file)  # before the long work
    found = look(
        path,
        candidate=candidate,
        baseline=baseline,
        data=data,
        overrides=overrides or [],
        trust_code=trust_code,
        work=work,
        load_s=seconds,
        load_threads=threads,
    )
    if junit is not None:
        write_text(junit, validation_junit(found))
    if sarif is not None:
        write_text(sarif, validation_sarif(found))
    job_summary(validation_markdown(found))
    sys.stdout.write(found.to_json() if as_json else validation_text(found))
    raise typer.Exit(EXIT[found.verdict])


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    *,
    key: Annotated[Path | None, typer.Option("--key", metavar="PUB", help="Also check the signature: PEM file of an Ed25519 public key.")] = None,
    as_json: Json = False,
) -> None:
    """Hash every file of a run again and hold it to the manifest. Exit codes: 0 as written, 1 a file is not, 2 wrong input."""
    from quant.api import verify as look  # noqa: PLC0415
    from quant.validation.verify import verification_text  # noqa: PLC0415

    found = look(run, key=key)
    sys.stdout.write(found.to_json() if as_json else verification_text(found))
    raise typer.Exit(EXIT["pass" if found.is_sound else "fail"])


@app.command()
def sign(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    *,
    key: Annotated[Path, typer.Option("--key", metavar="PEM", help="PEM file of an Ed25519 private key without a password.")],
    as_json: Json = False,
) -> None:
    """Sign a run's manifest, and with it every file, with an Ed25519 key."""
    from quant.api import sign as put  # noqa: PLC0415

    file = put(run, key=key)
    if as_json:
        sys.stdout.write(json.dumps({"signature": str(file)}, indent=2) + "\n")
    else:
        out.print(f"signed: {plain(file)}", highlight=False)
