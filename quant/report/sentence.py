"""The verdict in one sentence: the same words for the same results, so it speaks of sizes and drops, never of times."""

from __future__ import annotations

from collections.abc import Sequence

from quant.core.documents import Decision, Verdict
from quant.report.audit import differing
from quant.report.document import Baseline, Candidate, FidelityRow
from quant.report.gate_row import GateRow
from quant.report.words import count, decibels, drop, fixed, in_unit, limit, listed, lower, one_line, percent, plain, upper

_WORDS: dict[Decision, str] = {"pass": "Pass", "fail": "Fail", "inconclusive": "Inconclusive"}
_SHOWN = 3


def verdict_sentence(verdict: Decision, candidates: Sequence[Candidate], *, baseline: Baseline) -> str:
    """The verdict of a run in one sentence.

    A pass names the smallest passing candidate that is not emulated (then the one with the smallest drop); a fail the one that came closest; an
    inconclusive verdict the one that needs the fewest further samples.

    Args:
        verdict: Over all candidates.
        candidates: Every scheme on every target.
        baseline: The FP32 model.
    """
    measured = [c for c in candidates if c.status in {"measured", "failed"}]
    those = [c for c in measured if c.verdict == verdict]
    if not measured:
        said = f"nothing was measured: {listed(_absent(c) for c in candidates[:_SHOWN])}" if candidates else "there was no candidate"
    elif all(c.verdict is None for c in measured):
        said = _unjudged(min(measured, key=_smallest))
    elif not those:
        said = f"none of {count(len(measured), 'candidate')} has this verdict by itself"
    elif verdict == "pass":
        said = _passes(min(those, key=_smallest), len(those), len(measured))
    elif verdict == "fail":
        said = _fails(min(those, key=_closest), len(those), baseline)
    else:
        said = _undecided(min(those, key=_soonest))
    return f"{_WORDS[verdict]}: {said}."


def title(candidate: Candidate) -> str:
    """`scheme on target`, as a candidate is called everywhere."""
    return f"{one_line(candidate.scheme)} on {one_line(candidate.target)}"


def _absent(candidate: Candidate) -> str:
    reason = one_line(candidate.reason).rstrip(".")
    return f"{title(candidate)} is {candidate.status}" + (f" ({reason})" if reason else "")


def _smallest(candidate: Candidate) -> tuple[bool, float, float, str, str]:
    """Those that the engine really computes come before those that it emulates; then the smallest."""
    size = float("inf") if candidate.size_bytes is None else candidate.size_bytes
    return candidate.emulated is not None, size, candidate.drop if candidate.drop is not None else 0.0, candidate.scheme, candidate.target


def _closest(candidate: Candidate) -> tuple[bool, int, float, str, str]:
    beyond = _not_passing(candidate)
    excess = beyond[0].verdict.drop - beyond[0].verdict.limit if beyond else 0.0
    return candidate.status == "failed", len(beyond), excess, candidate.scheme, candidate.target


def _soonest(candidate: Candidate) -> tuple[float, str, str]:
    needs = [float("inf") if g.verdict.needed is None else g.verdict.needed for g in _not_passing(candidate)]
    return max(needs, default=float("inf")), candidate.scheme, candidate.target


def _not_passing(candidate: Candidate) -> list[GateRow]:
    """The gates that fail, then those that are undecided."""
    return [g for g in candidate.gates if g.verdict.decision == "fail"] + [g for g in candidate.gates if g.verdict.decision == "inconclusive"]


def _passes(candidate: Candidate, passing: int, measured: int) -> str:
    size = "" if candidate.size_ratio is None else f", {_beside_fp32(candidate.size_ratio)}"
    others = f"; {passing} of {count(measured, 'candidate')} pass" if measured > 1 else ""
    if not candidate.gates:
        return f"{_unjudged(candidate)}{others}"
    gate = candidate.gates[0]
    more = f", and {count(len(candidate.gates) - 1, 'further gate')} held" if len(candidate.gates) > 1 else ""
    return f"{title(candidate)}{_engine(candidate)} {_keeps(gate)} ({_found(gate, bound='upper')}{more}){size}{others}"


def _beside_fp32(ratio: float) -> str:
    return f"at {fixed(ratio)} times FP32's size" if ratio > 1 else f"with {fixed(ratio)} of FP32's size"


def _unjudged(candidate: Candidate) -> str:
    return f"there is no metric to judge by; {title(candidate)} was built{_engine(candidate)}{_closeness(candidate.fidelity)}"


def _fails(candidate: Candidate, failing: int, baseline: Baseline) -> str:
    beyond = _not_passing(candidate)
    if not beyond:
        if candidate.reason:
            return f"{title(candidate)}{_engine(candidate)} is not fit: {one_line(candidate.reason).rstrip('.')}"
        wrong = differing(candidate)
        layers = f"{wrong} of {count(len(candidate.audit), 'layer')} of {title(candidate)} run in another format than planned"
        return (
            layers
            if wrong
            else f"{title(candidate)} is not fit, though {one_line(baseline.metric) if baseline.metric else 'closeness to FP32'} is within its limit"
        )
    gate = beyond[0]
    said = f"{title(candidate)}{_engine(candidate)} does not keep {_within(gate)}"
    closest = f"; none of {count(failing, 'failing candidate')} comes closer" if failing > 1 else ""
    return f"{said} ({_found(gate, bound='lower')}){closest}"


def _undecided(candidate: Candidate) -> str:
    beyond = _not_passing(candidate)
    if not beyond:
        return _unjudged(candidate)
    gate = beyond[0]
    v = gate.verdict
    ends = f"between {lower(v.drop_lower, gate.unit, relative=v.relative)} and {upper(v.drop_upper, gate.unit, relative=v.relative)}"
    values = f"{in_unit(v.baseline, gate.unit)} → {in_unit(v.value, gate.unit)}"
    held = f"it cannot be said yet whether {title(candidate)}{_engine(candidate)} {_keeps(gate)}"
    return f"{held} ({values}, {_change(gate)} {ends}, each bound at {_confidence(v)}); {needed(gate)}"


def needed(gate: GateRow) -> str:
    """What would decide the inconclusive verdict of `gate`."""
    if (gate.verdict.available or 0) > gate.verdict.samples:
        return "it was undecided when the evaluation ended, as another gate failed"
    if gate.verdict.needed is not None:
        return f"about {count(gate.verdict.needed, 'more sample')} needed"
    if gate.verdict.limit != 0:
        return "no number of samples would decide, the drop is too close to the limit"
    if gate.direction == "same":
        return "a limit of 0 leaves no room for any change"
    return "a limit of 0 can only be met by a candidate that is better than FP32"


def _keeps(gate: GateRow) -> str:
    return f"keeps {_within(gate)}"


def _within(gate: GateRow) -> str:
    return f"{one_line(gate.title)} within {limit(gate.verdict, gate.unit)}" + ("" if gate.verdict.relative else " of FP32")


def _change(gate: GateRow) -> str:
    return "change" if gate.direction == "same" else "drop"


def _found(gate: GateRow, *, bound: str) -> str:
    v = gate.verdict
    values = f"{in_unit(v.baseline, gate.unit)} → {in_unit(v.value, gate.unit)}"
    if bound == "upper":
        return f"{values}, {_change(gate)} at most {upper(v.drop_upper, gate.unit, relative=v.relative)} at {_confidence(v)}"
    found = f"{_change(gate)} {drop(v.drop, gate.unit, relative=v.relative)}"
    if v.decision != "fail":
        return f"{values}, {found}; {needed(gate)}"
    return f"{values}, {found}, at least {lower(v.drop_lower, gate.unit, relative=v.relative)} at {_confidence(v)}"


def _confidence(verdict: Verdict) -> str:
    return f"{plain(100 * verdict.confidence)} % confidence"


def _engine(candidate: Candidate) -> str:
    words = [word for word, said in (("emulated", candidate.emulated), ("not audited", candidate.unaudited)) if said]
    return f" ({', '.join(words)})" if words else ""


def _closeness(fidelity: FidelityRow | None) -> str:
    if fidelity is None:
        return ""
    if fidelity.exact:
        return "; its outputs are exactly FP32's"
    sqnr = "" if fidelity.sqnr_db is None else f", SQNR {decibels(fidelity.sqnr_db)}"
    same = "" if fidelity.agreement is None else f", same top entry in {percent(fidelity.agreement, 1)}"
    return f"; its outputs have cosine {fixed(fidelity.cosine_mean, 4)} to FP32's{sqnr}{same}"
