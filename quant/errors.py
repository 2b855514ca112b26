"""The one family of errors that a user may see.

Every error says `where: what, with the value` and, on a second line, a hint that says what to change. A `QuantError` is
always the user's to mend (or the machine's: a full disk, no network); it is printed bare and ends with exit code 2. A bug
of ours is never a `QuantError`, so that it always shows its traceback.
"""

from __future__ import annotations


class QuantError(Exception):
    """A mistake in what was brought to the toolkit: `where: what`, then `hint: ...`.

    Args:
        what: What is wrong, with the offending value in it.
        where: Recipe file and line, file path, layer or tensor name; empty when there is no such place.
        hint: What to change; empty when nothing sensible can be said.

    Example:
        >>> print(QuantError("unknown key 'shceme'", where="my.yaml:3", hint="did you mean 'scheme'?"))
        my.yaml:3: unknown key 'shceme'
        hint: did you mean 'scheme'?
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\nhint: {self.hint}" if self.hint else head

    def at(self, where: str) -> QuantError:
        """Return this error placed at `where`, unless it already knows its place."""
        if not self.where:
            self.where = where
        return self


class RecipeError(QuantError):
    """A recipe that cannot be read, or says something that cannot be done."""


class SourceError(QuantError):
    """A file, package or hub entry that cannot be had, or is not what its SHA-256 says."""


class DataError(QuantError):
    """Samples that cannot be used: missing, of a wrong shape or type, not finite, leaking between roles."""


class ModelError(QuantError):
    """A model that cannot be read, or cannot be brought into the form that is asked for."""


class CalibrationError(QuantError):
    """Statistics or ranges that cannot be had from what was seen."""


class PlanError(QuantError):
    """A precision plan that names what is not there, or asks for what no scheme can give."""


class TargetError(QuantError):
    """A serving engine that is missing, or refuses the graph."""


class RunError(QuantError):
    """A run folder that cannot be used: locked, unwritable, full, or not a run."""
