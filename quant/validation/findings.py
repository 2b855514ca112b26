"""What validation finds: documents that can be printed, stored and compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from quant.core.documents import Decision, Document

Status = Literal["ok", "failed", "inconclusive", "skipped"]
Kind = Literal["layer", "tensor", "file", "request", "limit", "gate", "run"]


class Finding(Document):
    """One thing that is not as it must be.

    Args:
        kind: What `where` names.
        where: The layer, tensor, file (relative to what was validated), request or limit.
        what: What is wrong with it, with the value.
        tensor: The tensor or node within a layer that it is about; empty when there is none.
        file: The file that it lies in, relative to what was validated; empty when it lies in none.
    """

    kind: Kind
    where: str
    what: str
    tensor: str = ""
    file: str = ""

    def __str__(self) -> str:
        inner = f" [{self.tensor}]" if self.tensor and self.tensor != self.where else ""
        return f"{self.kind} {self.where}{inner}: {self.what}" if self.where else self.what


class Checked(Document):
    """What one check found.

    Args:
        check: Its name.
        title: What holds when it is in order.
        candidate: `scheme on target`; empty for a check of the whole run.
        status: `skipped` has its reason in `said`.
        said: What was found, in a few words.
        findings: Everything that is not as it must be.
        seconds: How long it took.
    """

    check: str = ""
    title: str = ""
    candidate: str = ""
    status: Status
    said: str = ""
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0


class Validation(Document):
    """A whole validation.

    Args:
        version: Version of this document's form.
        subject: The folder that was validated.
        verdict: `fail` when any check failed, else `inconclusive` when any is.
        sentence: The verdict in one sentence.
        checks: What each found, in the order in which they ran.
        environment: Name -> version or property of what it was computed with.
    """

    version: Literal[1] = 1
    subject: str
    verdict: Decision
    sentence: str
    checks: tuple[Checked, ...]
    environment: dict[str, str]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that is not as it must be."""
        return tuple(finding for check in self.checks for finding in check.findings)


def judged(findings: Iterable[Finding], said: str) -> Checked:
    """Failed if there is any finding, else in order, of which `said` tells."""
    found = tuple(findings)
    return Checked(status="failed" if found else "ok", said=said if not found else f"{len(found)} finding{'' if len(found) == 1 else 's'}", findings=found)


def skipped(reason: str) -> Checked:
    """Not looked at, and why."""
    return Checked(status="skipped", said=reason)
