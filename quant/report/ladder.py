"""A ladder: one model in one form and engine after the other, so that "it is wrong" becomes "it became wrong here, by this much"."""

from __future__ import annotations

from typing import Literal

from evaluators.agreement import Agreement
from evaluators.fidelity import Fidelity
from quant.core.documents import Document
from quant.core.shown import Chart, Series, Shown, Table
from quant.report.agreement import disagreement, parting_sentences
from quant.report.words import NOTHING, count, decibels, fixed, number, one_line, percent

_HEAD = ("rung", "agrees", "against", "SQNR", "cosine", "largest error", "same largest", "SQNR to the first", "same largest")
_NUMBERS_FROM = 3


class Rung(Document):
    """One form of the model in one engine.

    Args:
        name: What it is.
        before: Name of the rung that it is compared with; empty for the first.
        status: `ran`, `refused` (the engine does not take the graph), `not available` or `not applicable` (nothing to quantize).
        reason: Why it did not run.
        to_before: Closeness of the shown output to that of the rung before; None for the first, or where none is to be had.
        to_first: Closeness to the first rung's.
        agreement: Whether what this rung adds computes what the graph means; None for a rung that *is* that meaning.
        same_as: A rung before that parts in the same way: it gave the same outputs to the last bit.
    """

    name: str
    before: str = ""
    status: Literal["ran", "refused", "not available", "not applicable"] = "ran"
    reason: str = ""
    to_before: Fidelity | None = None
    to_first: Fidelity | None = None
    agreement: Agreement | None = None
    same_as: str = ""

    @property
    def parts(self) -> bool:
        """Whether it parts from what it should compute."""
        return self.agreement is not None and self.agreement.agrees is False


class Ladder(Document, Shown):
    """All rungs, from the first to the engines.

    Args:
        subject: The graph or the recipe.
        first: What the first rung is, from which the noise of the format is counted.
        inputs: What went in.
        output: The output that closeness is shown of; empty when none holds floats.
        rungs: From the first to the last.
        agrees: Whether no engine parts.
    """

    subject: str
    first: str
    inputs: str
    output: str
    rungs: tuple[Rung, ...]
    agrees: bool

    def as_table(self) -> Table:
        """Rung by rung, how close it is to the one before and to the first."""
        columns = ("rung", "status", "agrees", "against", "SQNR, dB", "cosine", "SQNR to the first, dB", "reason")
        rows = []
        for rung in self.rungs:
            agrees = None if rung.agreement is None else rung.agreement.agrees
            near = (None, None) if rung.to_before is None else (rung.to_before.sqnr_db, rung.to_before.cosine_mean)
            far = None if rung.to_first is None else rung.to_first.sqnr_db
            rows.append((rung.name, rung.status, agrees, rung.before or None, *near, far, rung.reason or None))
        return Table(f"Ladder of {self.subject}", columns, rows, {"inputs": self.inputs, "output": self.output, "found": ladder_verdict(self)})

    def as_chart(self) -> Chart:
        """How close each rung is to the first; one that is equal to the last bit has no noise to show."""
        found = [(rung.to_first.sqnr_db, rung.name) for rung in self.rungs if rung.to_first is not None and rung.to_first.sqnr_db is not None]
        series = Series("signal to noise", [value for value, _ in found], [name for _, name in found])
        return Chart(f"How close to {self.first}", "SQNR, dB", "", [series], "bars")


def ladder_text(ladder: Ladder) -> str:
    """The ladder as plain text: one line a rung, notes below."""
    lines = [_HEAD, *(_cells(rung) for rung in ladder.rungs)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
    done = [one_line(ladder.subject), f"inputs: {one_line(ladder.inputs)}; output: {one_line(ladder.output) or NOTHING}", ""]
    for place, line in enumerate(lines):
        cells = (cell.rjust(width) if i >= _NUMBERS_FROM else cell.ljust(width) for i, (cell, width) in enumerate(zip(line, widths, strict=True)))
        done.append("  ".join(cells).rstrip())
        done += [f"    {note}" for note in _notes(ladder.rungs[place - 1])] if place else []
    done += ["", ladder_verdict(ladder)]
    return "\n".join(done) + "\n"


def rung_rows(ladder: Ladder) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """(cells, notes) of every rung, in words."""
    return tuple((_cells(rung), tuple(_notes(rung))) for rung in ladder.rungs)


def _cells(rung: Rung) -> tuple[str, ...]:
    word = NOTHING if rung.agreement is None or rung.agreement.agrees is None else "✗ no" if rung.parts else "yes"
    if rung.status != "ran":
        word = rung.status
    return (one_line(rung.name), word, one_line(rung.before) or NOTHING, *_closeness(rung.to_before), *_closeness(rung.to_first, short=True))


def _closeness(found: Fidelity | None, *, short: bool = False) -> tuple[str, ...]:
    if found is None:
        return (NOTHING,) * (2 if short else 4)
    sqnr = "exact" if found.exact else NOTHING if found.sqnr_db is None else decibels(found.sqnr_db)
    same = NOTHING if found.agreement is None else percent(found.agreement, 1)
    return (sqnr, same) if short else (sqnr, fixed(found.cosine_mean, 5), number(found.max_abs_error), same)


def _notes(rung: Rung) -> list[str]:
    if rung.status != "ran":
        return [one_line(rung.reason)]
    if rung.same_as:
        return [f"the same outputs, to the last bit, as {one_line(rung.same_as)}"]
    found = rung.agreement
    if found is None:
        return []
    if found.agrees is None:
        return [one_line(found.reason)]
    return [disagreement(found), *(parting_sentences(found.parting) if found.parting else ())] if rung.parts else []


def ladder_verdict(ladder: Ladder) -> str:
    """Where it becomes wrong, in one sentence."""
    off = [rung for rung in ladder.rungs if rung.parts]
    if not off:
        asked = sum(rung.agreement is not None for rung in ladder.rungs)
        return f"{'It computes' if asked == 1 else 'All compute'} what the graph means ({count(asked, 'comparison')})."
    first = off[0].agreement
    where = f", at {one_line(first.parting.layer)}" if first is not None and first.parting is not None else ""
    return f"It becomes wrong in {one_line(off[0].name)}{where}; {len(off)} of {count(len(ladder.rungs), 'rung')} part from what they should compute."
