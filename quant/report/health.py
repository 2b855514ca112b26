"""How well calibration went: what is conspicuous in its ranges."""

from __future__ import annotations

from collections.abc import Sequence

from quant.report.document import RangeRow
from quant.report.words import count, plain, small_share

FAR = 40.0
"""How many times its root mean square a tensor must reach to be called one with outliers."""
CLIPS = 1e-3
"""Share of clipped values from which on it is said aloud."""


def reach(row: RangeRow) -> float:
    """The largest magnitude seen over the root mean square; 0 for a tensor of zeros.

    Example:
        >>> reach(RangeRow(tensor="t", minimum=-9.0, maximum=3.0, rms=1.5, low=-9.0, high=3.0, clipped=0.0))
        6.0
    """
    return max(abs(row.minimum), abs(row.maximum)) / row.rms if row.rms > 0 else 0.0


def remarks(row: RangeRow) -> tuple[str, ...]:
    """What is conspicuous about one range."""
    found = []
    if row.minimum == row.maximum:
        found.append("constant")
    if row.clipped >= CLIPS:
        found.append("clips")
    if reach(row) > FAR:
        found.append(f"outliers: reaches {plain(round(reach(row)))} times its RMS")
    return tuple(found)


def health_sentences(rows: Sequence[RangeRow]) -> tuple[str, ...]:
    """What is to be said of all ranges together; the good, too."""
    if not rows:
        return ()
    far = sorted((row for row in rows if reach(row) > FAR), key=lambda row: (-reach(row), row.tensor))
    clipping = sum(row.clipped >= CLIPS for row in rows)
    still = sum(row.minimum == row.maximum for row in rows)
    said = [f"{clipping:,} of {count(len(rows), 'range')} {_verb(clipping, 'clip')} {small_share(CLIPS)} of the values or more."]
    if far:
        them = f"{far[0].tensor}, by {plain(round(reach(far[0])))} times"
        many = f"{count(len(far), 'tensor')} {_verb(len(far), 'reach')} further than {plain(FAR)} times their root mean square: outliers"
        said.append(f"{many}; the furthest is {them}.")
    else:
        said.append(f"No tensor reaches further than {plain(FAR)} times its root mean square: there are no outliers.")
    if still:
        said.append(f"{count(still, 'tensor')} never {_verb(still, 'change')}: the samples say nothing of its range.")
    return tuple(said)


def _verb(number: int, verb: str) -> str:
    return verb + ("es" if verb.endswith("ch") else "s") if number == 1 else verb
