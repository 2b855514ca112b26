"""Every file is what was written: the folder against its manifest, and the artifact against what it says of itself."""

from __future__ import annotations

from typing import ClassVar

from quant.report.words import count
from quant.validation.check import CHECKS, OfCandidate, OfRun
from quant.validation.findings import Checked, Finding, judged, skipped
from quant.validation.manifest import changed_files
from quant.validation.subject import Subject


@CHECKS.add
class Files(OfRun):
    """Every file of the run has the SHA-256 that the manifest says, and there are no others."""

    kind: ClassVar[str] = "files"
    title: ClassVar[str] = "every file is what was written"
    order: ClassVar[int] = 10

    def look(self, subject: Subject) -> Checked:
        """Hash all files again."""
        folder = subject.delivery.folder
        if folder is None:
            return skipped("a single artifact comes without a manifest")
        found, named = changed_files(folder)
        return judged(found, f"{count(named, 'file')} with the SHA-256 of the manifest")


@CHECKS.add
class ArtifactFiles(OfCandidate):
    """The artifact holds the files that it says it holds."""

    kind: ClassVar[str] = "artifact-files"
    title: ClassVar[str] = "the artifact's files are those that it names"
    order: ClassVar[int] = 15

    def look(self, subject: Subject) -> Checked:
        """Hash the artifact's files again, against `artifact.json`."""
        told, there = subject.stored.files, subject.files
        found = [self._finding(subject, name, "is missing") for name in sorted(set(told) - set(there))]
        found += [self._finding(subject, name, "is not named in artifact.json") for name in sorted(set(there) - set(told) - subject.unrepeatable)]
        off = sorted(name for name in set(told) & set(there) if told[name] != there[name])
        found += [self._finding(subject, name, f"has SHA-256 {there[name][:12]}…, artifact.json says {told[name][:12]}…") for name in off]
        own = f"; {count(len(subject.unrepeatable), 'file')} of the engine's own, of which it names no digest" if subject.unrepeatable else ""
        return judged(found, f"{count(len(told), 'file')} as named{own}")

    @staticmethod
    def _finding(subject: Subject, name: str, what: str) -> Finding:
        return Finding(kind="file", where=subject.path_of(name), file=subject.path_of(name), what=what)
