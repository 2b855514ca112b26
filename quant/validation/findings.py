"""What validation finds: documents that can be printed, stored and compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from quant.core.documents import Decision, Document
from quant.core.shown import Chart, Series, Shown, Table

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


class Validation(Document, Shown):
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

    def as_table(self) -> Table:
        """Check by check; what failed first."""
        order = {"failed": 0, "inconclusive": 1, "ok": 2, "skipped": 3}
        checks = sorted(self.checks, key=lambda c: order[c.status])
        rows = [(c.candidate or None, c.check, c.status, "; ".join([c.said, *map(str, c.findings[:3])]).strip("; "), c.seconds) for c in checks]
        return Table(self.sentence, ("candidate", "check", "status", "said", "seconds"), rows, {"folder": self.subject, "findings": len(self.findings)})

    def as_chart(self) -> Chart:
        """How long each check took, by how it ended."""
        series = []
        for status in dict.fromkeys(c.status for c in self.checks):
            mine = [c for c in self.checks if c.status == status]
            series.append(Series(status, [c.seconds for c in mine], [f"{c.check} {c.candidate}".strip() for c in mine], said=[c.said or c.check for c in mine]))
        return Chart(self.sentence, "seconds", "", series, "bars")


def judged(findings: Iterable[Finding], said: str) -> Checked:
    """Failed if there is any finding, else in order, of which `said` tells."""
    found = tuple(findings)
    return Checked(status="failed" if found else "ok", said=said if not found else f"{len(found)} finding{'' if len(found) == 1 else 's'}", findings=found)


def skipped(reason: str) -> Checked:
    """Not looked at, and why."""
    return Checked(status="skipped", said=reason)
