"""Where the parts of a graph stand in its picture: in ranks from left to right, which are broken into lines like words of a text.

A rank holds what may be computed at the same time; what is read from further away passes the ranks between in *bends*. The
order within ranks comes from a few sweeps of medians (Sugiyama's scheme), their height from least squares with a least
distance (pooling of adjacent violators). Nothing is drawn at random: the same graph gives the same picture.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from quant.report.graph import GraphPart

_SWEEPS = 6
_ROOM = {"layer": 44.0, "join": 26.0, "input": 36.0, "output": 36.0, "bend": 12.0}
"""Height that a part takes in its rank."""
_WIDTH = {"layer": 128.0, "join": 16.0, "input": 104.0, "output": 104.0, "bend": 0.0}
_GAP = 24.0
"""Between two ranks."""
_BETWEEN = 34.0
"""Between two lines."""
_MARGIN = 28.0
_SHAPE = 1.7
"""Width over height that a picture is broken into lines for."""

Ranks = list[list[int]]
Sides = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class Place:
    """Middle of a part, and half its width."""

    x: float
    y: float
    half: float


@dataclass(frozen=True)
class Drawing:
    """A drawn graph, in its own units (pixels at full size).

    Args:
        width: Of the whole.
        height: Of the whole.
        places: Where each part stands, in the order of the parts.
        lines: Every connection, as the path of an SVG.
    """

    width: float
    height: float
    places: tuple[Place, ...]
    lines: tuple[str, ...]


def lay_out(parts: Sequence[GraphPart]) -> Drawing:
    """Where every part stands, and how lines lead from one to another."""
    kinds: list[str] = [part.kind for part in parts]
    own = _ranks(parts)
    links, bends = _links(parts, own)
    every = {**dict(enumerate(kinds)), **dict.fromkeys(bends, "bend")}
    into, out = _both(links)
    ordered = _ordered({**dict(enumerate(own)), **bends}, into, out)
    height = _heights(ordered, every, into, out)
    return _broken(ordered, every, height, links, len(parts))


def _ranks(parts: Sequence[GraphPart]) -> list[int]:
    """The longest way to each part; what reads nothing stands just before its first reader."""
    rank = [0] * len(parts)
    first = [len(parts)] * len(parts)
    for place, part in enumerate(parts):
        rank[place] = 1 + max((rank[read] for read in part.reads), default=-1)
        for read in part.reads:
            first[read] = min(first[read], rank[place])
    return [max(first[place] - 1, 0) if not part.reads and first[place] < len(parts) else rank[place] for place, part in enumerate(parts)]


def _links(parts: Sequence[GraphPart], rank: Sequence[int]) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """(pairs in ranks side by side, bend -> its rank); what is read from several ranks passes them in one line of bends."""
    links: dict[tuple[int, int], None] = {}
    bends: dict[int, int] = {}
    way: dict[tuple[int, int], int] = {}
    for place, part in enumerate(parts):
        for read in part.reads:
            at = read
            for level in range(rank[read] + 1, rank[place]):
                bend = way.setdefault((read, level), len(parts) + len(way))
                bends[bend] = level
                links[at, bend] = None
                at = bend
            links[at, place] = None
    return list(links), bends


def _both(links: Iterable[tuple[int, int]]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    for start, end in links:
        into.setdefault(end, []).append(start)
        out.setdefault(start, []).append(end)
    return into, out


def _ordered(rank: Mapping[int, int], into: Sides, out: Sides) -> Ranks:
    """The parts of each rank, ordered so that few lines cross."""
    ranks: Ranks = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for part, level in rank.items():
        ranks[level].append(part)
    best, fewest = ranks, _crossings(ranks, out)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        ranks = [list(level) for level in ranks]
        for level in range(1, len(ranks)) if forward else range(len(ranks) - 2, -1, -1):
            beside = {part: at for at, part in enumerate(ranks[level - 1 if forward else level + 1])}
            _sort(ranks[level], into if forward else out, beside)
        if (found := _crossings(ranks, out)) < fewest:
            best, fewest = ranks, found
    return best


def _sort(level: list[int], sides: Sides, beside: Mapping[int, int]) -> None:
    now = {part: at for at, part in enumerate(level)}
    level.sort(key=lambda part: (median(beside[o] for o in sides[part]) if part in sides else now[part], now[part]))


def _crossings(ranks: Ranks, out: Sides) -> int:
    total = 0
    for level in range(len(ranks) - 1):
        beside = {part: at for at, part in enumerate(ranks[level + 1])}
        seen: list[int] = []
        for part in ranks[level]:
            ends = sorted(beside[o] for o in out.get(part, ()))
            total += sum(len(seen) - bisect.bisect_right(seen, end) for end in ends)
            for end in ends:
                bisect.insort(seen, end)
    return total


def _heights(ranks: Ranks, kinds: Mapping[int, str], into: Sides, out: Sides) -> dict[int, float]:
    """Height of each part, around 0: near those that it is connected with, and apart from those of its own rank."""
    height: dict[int, float] = {}
    for level in ranks:
        _stack(level, kinds, height, lambda _: 0.0)
    for forward in (True, False, True, False, True):
        sides = into if forward else out
        for level in ranks if forward else reversed(ranks):
            _stack(level, kinds, height, lambda part, sides=sides: median([height[o] for o in sides[part]]) if part in sides else height[part])  # type: ignore[misc]
    return height


def _stack(level: Sequence[int], kinds: Mapping[int, str], height: dict[int, float], wish: Callable[[int], float]) -> None:
    """Heights as near to what is wished, in least squares, as the room of each part allows."""
    offset, offsets = 0.0, []
    for before, part in zip([None, *level], level, strict=False):
        offset += 0.0 if before is None else (_ROOM[kinds[before]] + _ROOM[kinds[part]]) / 2
        offsets.append(offset)
    pools: list[list[float]] = []
    for part, at in zip(level, offsets, strict=True):
        pools.append([wish(part) - at, 1.0])
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            mean, size = pools.pop()
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * size) / (pools[-1][1] + size), pools[-1][1] + size]
    means = [mean for mean, size in pools for _ in range(int(size))]
    height.update({part: mean + at for part, mean, at in zip(level, means, offsets, strict=True)})


def _broken(ranks: Ranks, kinds: Mapping[int, str], height: Mapping[int, float], links: Sequence[tuple[int, int]], count: int) -> Drawing:
    """The ranks in lines, one below the other."""
    widths = [max(_WIDTH[kinds[part]] for part in level) + _GAP for level in ranks]
    tops = [min(height[part] - _ROOM[kinds[part]] / 2 for part in level) for level in ranks]
    ends = [max(height[part] + _ROOM[kinds[part]] / 2 for part in level) for level in ranks]
    lines = _best_lines(widths, tops, ends)
    place: dict[int, Place] = {}
    line_of: dict[int, int] = {}
    right = _MARGIN + max((sum(widths[start:end]) for start, end in lines), default=0.0)
    gutters, y = [], _MARGIN / 2
    for number, (start, end) in enumerate(lines):
        low, x = min(tops[start:end]), _MARGIN
        for level in range(start, end):
            for part in ranks[level]:
                place[part] = Place(x + widths[level] / 2, y + height[part] - low, _WIDTH[kinds[part]] / 2)
                line_of[part] = number
            x += widths[level]
        y += max(ends[start:end]) - low
        gutters.append(y + _BETWEEN / 2)
        y += _BETWEEN
    drawn = tuple(
        _line(place[a], place[b], None if line_of[a] == line_of[b] else (gutters[line_of[a]], right, _MARGIN)) for a, b in links if a in place and b in place
    )
    return Drawing(right + _MARGIN, max(y - _BETWEEN + _MARGIN / 2, 1.0), tuple(place[part] for part in range(count)), drawn)


def _best_lines(widths: Sequence[float], tops: Sequence[float], ends: Sequence[float]) -> list[tuple[int, int]]:
    """First and last rank of each line, so that the whole comes closest to its shape."""
    total = sum(widths)
    tried = [_lines(widths, total / wanted * 1.0001) for wanted in range(1, math.isqrt(len(widths)) * 2 + 2)]

    def off(lines: Sequence[tuple[int, int]]) -> float:
        tall = sum(max(ends[a:b]) - min(tops[a:b]) + _BETWEEN for a, b in lines)
        return abs(math.log(max(sum(widths[a:b]) for a, b in lines) / tall / _SHAPE)) if lines else 0.0

    return min(tried, key=off)


def _lines(widths: Sequence[float], most: float) -> list[tuple[int, int]]:
    lines, start, x = [], 0, 0.0
    for level, width in enumerate(widths):
        if x + width > most and level > start:
            lines.append((start, level))
            start, x = level, 0.0
        x += width
    return [*lines, (start, len(widths))] if widths else []


def _line(start: Place, end: Place, turn: tuple[float, float, float] | None) -> str:
    """From the right side of one to the left side of another; over a gutter where the next line begins."""
    a, b = start.x + start.half, end.x - end.half
    if turn is None:
        middle = (a + b) / 2
        return f"M{_r(a)} {_r(start.y)}C{_r(middle)} {_r(start.y)} {_r(middle)} {_r(end.y)} {_r(b)} {_r(end.y)}"
    gutter, right, left = turn
    return f"M{_r(a)} {_r(start.y)}H{_r(right + 8)}V{_r(gutter)}H{_r(left - 8)}V{_r(end.y)}H{_r(b)}"


def _r(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
