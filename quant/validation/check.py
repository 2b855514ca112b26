"""Checks of what is about to be deployed: what one is, and where they register."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

from quant.core.registry import Options, Registry
from quant.validation.findings import Checked
from quant.validation.subject import Subject

Scope = Literal["run", "candidate"]


class Check(Protocol):
    """One thing that must hold of a run, or of each candidate that is to be deployed."""

    kind: ClassVar[str]
    title: ClassVar[str]
    """What holds when it is in order."""
    order: ClassVar[int]
    """Those with lower numbers come first: what is cheap, and what others build on."""
    scope: ClassVar[Scope]

    def look(self, subject: Subject, /) -> Checked:
        """What was found."""
        ...


CHECKS: Registry[Check] = Registry("check", "quant.validation.checks")


class _Plain:
    """A check without options."""

    class Options(Options):
        """None."""

    def __init__(self, options: Options) -> None:
        self.options = options


class OfRun(_Plain):
    """A check of the run as a whole."""

    scope: ClassVar[Scope] = "run"


class OfCandidate(_Plain):
    """A check of each candidate."""

    scope: ClassVar[Scope] = "candidate"
