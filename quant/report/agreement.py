"""What is said of an engine against the plain meaning of its graph."""

from __future__ import annotations

from evaluators.agreement import Agreement, OutputAgreement, Parting
from quant.report.words import NOTHING, count, decibels, listed, one_line, percent

_SHOWN = 3


def disagreement(found: Agreement | None) -> str:
    r"""Where an engine parts from the plain meaning of its graph, in one line; empty when it does not, or was not asked.

    Example:
        >>> off = OutputAgreement(output="y", rows=4, values=8, noise_db=-30.0, deviation_db=-5.0, limit_db=-20.0, agrees=False)
        >>> part = Parting(layer="conv", op="Conv", tensor="conv_out", deviation_db=-2.0, noise_db=-40.0)
        >>> ascii(disagreement(Agreement(agrees=False, samples=4, outputs=(off,), parting=part))).replace("\\u2212", "-")
        "'the engine does not compute what its graph means: output y is off by -5.0 dB, the format itself by -30.0 dB; it begins at layer conv (-2.0 dB)'"
    """
    if found is None or found.agrees is not False or found.worst is None:
        return ""
    begins = f"; it begins at layer {_place(found.parting)}" if found.parting is not None else ""
    return f"the engine does not compute what its graph means: {_off(found.worst)}{begins}"


def _place(parting: Parting) -> str:
    return one_line(parting.layer) + ("" if parting.deviation_db is None else f" ({decibels(parting.deviation_db)})")


def _off(found: OutputAgreement) -> str:
    name = f"output {one_line(found.output)}"
    if found.not_finite:
        return f"{name} has {count(found.not_finite, 'value')} that are not finite"
    if found.differing is not None:
        return f"{percent(found.differing)} of {name} differs, between FP32 and the graph {percent(found.noisy or 0.0)}"
    return f"{name} is off by {power(found.deviation_db)}, the format itself by {power(found.noise_db)}"


def power(db: float | None) -> str:
    """A power in dB; of nothing, `nothing`."""
    return "nothing" if db is None else decibels(db)


def agreement_sentences(found: Agreement | None) -> tuple[str, ...]:
    """The agreement of an engine in sentences; none when it was not asked."""
    if found is None:
        return ()
    if found.agrees is None:
        return (f"Not compared with the plain meaning of its graph: {one_line(found.reason)}.",)
    if found.agrees:
        return (f"The engine computes what its graph means, on {count(found.samples, 'sample')}.",)
    said = disagreement(found)
    return (f"{said[0].upper()}{said[1:]}, on {count(found.samples, 'sample')}.", *(parting_sentences(found.parting) if found.parting else ()))


def parting_sentences(parting: Parting) -> tuple[str, ...]:
    """Where an engine parts from its graph: the tensor, what lies before and behind it, and what makes it go away."""
    power_there = NOTHING if parting.deviation_db is None else f"off by {decibels(parting.deviation_db)}, where rounding makes {power(parting.noise_db)}"
    said = [f"The first tensor that is off is {one_line(parting.tensor)} ({power_there})."]
    if parting.before:
        said.append(f"What it is computed from agrees: {_names(parting.before)}.")
    if parting.vanishes:
        together = f", which points at what the engine makes of {_names(parting.within)} together" if len(parting.within) > 1 else ""
        said.append(f"The disagreement goes away when {_names(parting.vanishes)} is given out{together}.")
    if parting.behind:
        said.append(f"It is read by {_names(parting.behind)}.")
    return tuple(said)


def _names(names: tuple[str, ...]) -> str:
    shown = [one_line(name) for name in names[:_SHOWN]]
    more = len(names) - _SHOWN
    return listed([*shown, f"{more} more"] if more > 0 else shown)


def output_rows(found: Agreement) -> tuple[tuple[str, str, str, str, str], ...]:
    """Every output in words: name, noise of the format, deviation of the engine, where the limit lies, whether it agrees."""
    return tuple(
        (one_line(o.output), percent(o.noisy or 0.0), percent(o.differing), NOTHING, _yes(o))
        if o.differing is not None
        else (one_line(o.output), power(o.noise_db), power(o.deviation_db), power(o.limit_db), _yes(o))
        for o in found.outputs
    )


def _yes(found: OutputAgreement) -> str:
    return "yes" if found.agrees else "✗ no"
