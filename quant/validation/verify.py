"""verify: a run's files against its manifest, and the manifest against its signature; nothing is computed anew."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from quant.core.arguments import with_checked_arguments
from quant.core.documents import Document
from quant.core.shown import Chart, Series, Shown, Table
from quant.engine.folder import SIGNATURE
from quant.errors import RunError
from quant.report.words import count, one_line
from quant.validation.findings import Finding
from quant.validation.manifest import changed_files
from quant.validation.signing import signature_fault


class Verification(Document, Shown):
    """Whether a run's folder is as it was written.

    Args:
        version: Version of this document's form.
        folder: The run's folder.
        files: Number of files that the manifest names.
        signed: Whether the signature is that of the key that was given; None when none was given.
        findings: Every file that is not as the manifest says, and what is wrong with the signature.
    """

    version: Literal[1] = 1
    folder: str
    files: int
    signed: bool | None
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def as_table(self) -> Table:
        """Everything that is not as it was written."""
        rows = [(f.file or f.where, f.what) for f in self.findings]
        title = "As it was written" if self.is_sound else "Not as it was written"
        return Table(title, ("file", "what is wrong"), rows, {"folder": self.folder, "files": self.files, "signed": self.signed})

    def as_chart(self) -> Chart:
        """How many files are as they were written, and how many are not."""
        wrong = len({f.file or f.where for f in self.findings})
        return Chart("Files of the run", "files", "", [Series("files", [max(self.files - wrong, 0), wrong], ["as written", "not as written"])], "bars")


@with_checked_arguments
def verify(folder: Path | str, *, key: Path | str | None = None) -> Verification:
    """Hash every file of a run again; with `key`, check the manifest's signature too.

    Args:
        folder: The run's folder.
        key: PEM file of an Ed25519 public key.

    Raises:
        QuantError: There is no manifest, or the key cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RunError("no such run", where=str(folder), hint="give the folder that a run wrote")
    fault = "" if key is None else signature_fault(folder, Path(key))
    found, files = changed_files(folder)
    if fault:
        found = [Finding(kind="file", where=SIGNATURE, file=SIGNATURE, what=fault), *found]
    return Verification(folder=str(folder), files=files, signed=None if key is None else not fault, findings=tuple(found))


def verification_text(found: Verification) -> str:
    """What is wrong, line by line, and a last line that says how it stands."""
    signed = {None: "", True: ", the signature is right", False: ""}[found.signed]
    end = f"{found.folder}: {count(found.files, 'file')} as written{signed}" if found.is_sound else f"{found.folder}: {count(len(found.findings), 'finding')}"
    return "\n".join([*(one_line(str(finding)) for finding in found.findings), one_line(end)]) + "\n"
