"""Numbers and names for people: percent, points, ms, MiB, dB; and nothing in a name that hides or acts."""

from __future__ import annotations

import math
from collections.abc import Iterable

from quant.core.documents import Verdict
from quant.core.text import NOTHING as NOTHING  # noqa: PLC0414 - reports take their words from here
from quant.core.text import visible as visible  # noqa: PLC0414 - likewise

_SHARES = frozenset({"share", "rate"})
_UNSPOKEN = frozenset({"score", "correlation", "perplexity", "label's unit"})
"""Units that the metric's name says already."""
_LONGEST_UNIT = 16
_KIB = 1024
_MOST = 1e6


def one_line(text: str) -> str:
    """`visible(text)` on one line."""
    return " ".join(visible(text).split())


def _signed(text: str) -> str:
    """With a true minus sign, and no sign on a zero."""
    if text.startswith("-"):
        return text[1:] if not any(c in "123456789" for c in text.partition("e")[0]) else "\N{MINUS SIGN}" + text[1:]
    return text


def fixed(value: float, decimals: int = 2) -> str:
    r"""`value` with so many decimals, rounded half to even on its decimal form.

    Example:
        >>> fixed(-0.001), ascii(fixed(-1.5)), fixed(12345.678)
        ('0.00', "'\\u22121.50'", '12,345.68')
    """
    return _signed(f"{value:,.{decimals}f}")


def plain(value: float) -> str:
    """`value` as short as it can be said, up to six significant digits.

    Example:
        >>> plain(1.0), plain(0.5), plain(0.1 + 0.2)
        ('1', '0.5', '0.3')
    """
    return _signed(f"{value:.6g}")


def number(value: float) -> str:
    """`value` with digits enough to compare two of its kind.

    Example:
        >>> number(0.72894), number(20.7712), number(1234.5), number(0.00001234)
        ('0.7289', '20.77', '1,234', '1.234e-05')
    """
    size = abs(value)
    if size != 0 and (size < 1e-3 or size >= _MOST):  # noqa: PLR2004 below, four decimals would show fewer than two digits
        return _signed(f"{value:.3e}")
    return fixed(value, 4 if size < 10 else 2 if size < 1000 else 0)  # noqa: PLR2004 four significant digits or more


def percent(share: float, decimals: int = 2) -> str:
    """A share in percent.

    Example:
        >>> percent(0.798)
        '79.80 %'
    """
    return f"{fixed(100 * share, decimals)} %"


def small_share(share: float) -> str:
    """A share that is mostly close to nothing, in percent; what is there is never shown as zero.

    Example:
        >>> small_share(0), small_share(0.0000001), small_share(0.00012)
        ('0 %', '< 0.001 %', '0.012 %')
    """
    if share == 0:
        return "0 %"
    return "< 0.001 %" if share < 1e-5 else percent(share, 3)  # noqa: PLR2004 0.001 %


def decibels(value: float) -> str:
    """A ratio in dB."""
    return f"{fixed(value, 1)} dB"


def milliseconds(value: float) -> str:
    """A time in ms, three significant digits or more.

    Example:
        >>> milliseconds(0.01234), milliseconds(3.21987), milliseconds(123.4)
        ('0.012 ms', '3.22 ms', '123.4 ms')
    """
    return f"{fixed(value, 3 if abs(value) < 1 else 2 if abs(value) < 100 else 1)} ms"  # noqa: PLR2004 three significant digits


def seconds(value: float) -> str:
    """A duration.

    Example:
        >>> seconds(0.0421), seconds(12.34), seconds(200)
        ('42 ms', '12.3 s', '3 min 20 s')
    """
    if value < 1:
        return f"{fixed(1000 * value, 0)} ms"
    if value < 60:  # noqa: PLR2004 a minute
        return f"{fixed(value, 1)} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes:,} min {rest} s"


def size(size_bytes: float) -> str:
    """A size in B, KiB, MiB or GiB.

    Example:
        >>> size(512), size(1536), size(18.8e6)
        ('512 B', '1.5 KiB', '17.9 MiB')
    """
    if size_bytes < _KIB:
        return f"{size_bytes:.0f} B"
    for unit in ("KiB", "MiB"):
        size_bytes /= _KIB
        if size_bytes < _KIB:
            return f"{fixed(size_bytes, 1)} {unit}"
    return f"{fixed(size_bytes / _KIB, 2)} GiB"


def count(value: int, noun: str) -> str:
    """How many of something.

    Example:
        >>> count(1, "sample"), count(1200, "sample")
        ('1 sample', '1,200 samples')
    """
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def in_unit(value: float, unit: str) -> str:
    """A metric's value.

    Example:
        >>> in_unit(0.798, "share"), in_unit(0.7289, "correlation"), in_unit(1.25, "nats")
        ('79.80 %', '0.7289', '1.2500 nats')
    """
    if unit in _SHARES:
        return percent(value)
    return number(value) if unit in _UNSPOKEN or not unit else f"{number(value)} {_short(unit)}"


def drop(value: float, unit: str, *, relative: bool) -> str:
    """How much worse a metric is: in points, as a share of FP32's, or in the metric's unit.

    Example:
        >>> drop(0.002, "share", relative=False), drop(0.002, "share", relative=True)
        ('0.20 points', '0.20 % of FP32')
    """
    return _with_words(_scaled(value, unit, relative=relative), unit, relative=relative)


def upper(value: float, unit: str, *, relative: bool) -> str:
    """An upper bound of a drop, rounded up, so that what is shown is never better than what was found.

    Example:
        >>> upper(0.010001, "share", relative=False)
        '1.01 points'
    """
    return _with_words(_away(value, unit, relative=relative, toward=math.ceil), unit, relative=relative)


def lower(value: float, unit: str, *, relative: bool) -> str:
    """A lower bound of a drop, rounded down."""
    return _with_words(_away(value, unit, relative=relative, toward=math.floor), unit, relative=relative)


def limit(verdict: Verdict, unit: str) -> str:
    """The largest drop that the gate allows.

    Example:
        >>> common = dict(decision="pass", baseline=1, value=1, drop=0, drop_lower=0, drop_upper=0, confidence=0.95, method="", samples=1)
        >>> limit(Verdict(limit=0.01, relative=False, **common), "share"), limit(Verdict(limit=0.01, relative=True, **common), "nats")
        ('1 point', '1 % of FP32')
    """
    shares = unit in _SHARES or verdict.relative
    text = plain(100 * verdict.limit if shares else verdict.limit)
    if shares and not verdict.relative:
        return f"{text} point" if text == "1" else f"{text} points"
    return _with_words(text, unit, relative=verdict.relative)


def looked_at(verdict: Verdict) -> str:
    """How many samples a verdict looked at, and of how many where it did not need all.

    Example:
        >>> common = dict(decision="pass", baseline=1, value=1, drop=0, drop_lower=0, drop_upper=0, confidence=0.95, method="", limit=0, relative=False)
        >>> looked_at(Verdict(samples=2000, **common)), looked_at(Verdict(samples=400, available=2000, **common))
        ('2,000', '400 of 2,000')
    """
    return f"{verdict.samples:,}" + (f" of {verdict.available:,}" if (verdict.available or 0) > verdict.samples else "")


def how_sure(verdict: Verdict, *, shown: bool = False) -> str:
    """What the bounds of a verdict promise; those of slices that are only shown hold for all of these at once.

    Example:
        >>> common = dict(decision="pass", baseline=1, value=1, drop=0, drop_lower=0, drop_upper=0, confidence=0.95, method="", limit=0, relative=False)
        >>> how_sure(Verdict(samples=9, **common)), how_sure(Verdict(samples=9, family=3, **common))
        ('each bound at 95 %', 'each bound at 95 %, the lower one for 3 verdicts together')
    """
    sure = f"each bound at {plain(100 * verdict.confidence)} %"
    if shown:
        return f"{sure} for all slices of a metric together"
    together = f", the lower one for {verdict.family} verdicts together" if verdict.family > 1 else ""
    return sure + together + (f", for all looks together ({verdict.looks} made)" if verdict.looks else "")


def drop_scale(unit: str, *, relative: bool) -> tuple[float, str]:
    """What to multiply a drop by before it is shown on an axis, and the words behind it (which may be none)."""
    shares = unit in _SHARES or relative
    return (100.0 if shares else 1.0), _with_words("", unit, relative=relative).strip()


def _scaled(value: float, unit: str, *, relative: bool) -> str:
    return fixed(100 * value) if unit in _SHARES or relative else number(value)


def _away(value: float, unit: str, *, relative: bool, toward: object) -> str:
    places = 2 if unit in _SHARES or relative else 4
    scaled = 100 * value if unit in _SHARES or relative else value
    assert callable(toward)
    # Rounded to twelve digits first: 0.6 points are 0.60 points, and not 0.61 because of how 0.006 is stored.
    return fixed(toward(round(scaled * 10**places, 9)) / 10**places, places)


def _with_words(text: str, unit: str, *, relative: bool) -> str:
    if relative:
        return f"{text} % of FP32"
    if unit in _SHARES:
        return f"{text} points"
    return text if unit in _UNSPOKEN or not unit else f"{text} {_short(unit)}"


def _short(unit: str) -> str:
    return clipped(one_line(unit), _LONGEST_UNIT)


def clipped(text: str, most: int) -> str:
    r"""`text`, or its beginning where it is longer than `most` characters.

    Example:
        >>> clipped("abcdef", 6), ascii(clipped("abcdefg", 6))
        ('abcdef', "'abcde\\u2026'")
    """
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def listed(words: Iterable[str]) -> str:
    """Words in one phrase.

    Example:
        >>> listed(["a", "b", "c"])
        'a, b and c'
    """
    found = list(words)
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)
