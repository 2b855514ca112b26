"""What layers do to the outputs, as a table with bars: one row a layer, one column a format."""

from __future__ import annotations

from dataclasses import dataclass

from quant.report.mixing import EffectRow, MixingRow, spread
from quant.report.words import NOTHING, count, one_line


@dataclass(frozen=True)
class Bar:
    """An effect: its value, in words, and as a bar 100 long with a whisker of one standard error."""

    value: float
    words: str
    bar: float
    low: float
    high: float


@dataclass(frozen=True)
class EffectsOfLayer:
    """One row: an entry for each format, None where it was not told; and what the layer costs in its cheapest format."""

    layer: str
    effects: tuple[Bar | None, ...]
    cost: str


@dataclass(frozen=True)
class EffectTable:
    """The sensitivity on one target."""

    target: str
    sentence: str
    unit: str
    formats: tuple[str, ...]
    rows: tuple[EffectsOfLayer, ...]


def effect_tables(mixing: tuple[MixingRow, ...]) -> tuple[EffectTable, ...]:
    """One table for every target that effects are told of."""
    return tuple(_table(row) for row in mixing if row.effects)


def _table(row: MixingRow) -> EffectTable:
    formats = tuple(dict.fromkeys(e.format for e in row.effects))
    ends = [e.value + e.standard_error for e in row.effects]
    full = max(0.0, *ends) or 1.0
    found: dict[str, dict[str, EffectRow]] = {}
    for e in row.effects:
        found.setdefault(e.layer, {})[e.format] = e
    largest = sorted(found, key=lambda layer: (-max(e.value for e in found[layer].values()), layer))
    rows = tuple(EffectsOfLayer(layer, tuple(_bar(found[layer].get(f), full) for f in formats), _cost(found[layer])) for layer in largest)
    return EffectTable(row.target, _sentence(row, largest, found), row.unit, formats, rows)


def _bar(effect: EffectRow | None, full: float) -> Bar | None:
    if effect is None:
        return None
    at = [min(max(100 * v / full, 0.0), 100.0) for v in (effect.value, effect.value - effect.standard_error, effect.value + effect.standard_error)]
    return Bar(effect.value, spread(effect.value, effect.standard_error), *at)


def _cost(effects: dict[str, EffectRow]) -> str:
    costs = [e.cost for e in effects.values() if e.cost is not None]
    return f"{min(costs):.3g}" if costs else NOTHING


def _sentence(row: MixingRow, largest: list[str], found: dict[str, dict[str, EffectRow]]) -> str:
    """How few layers make most of the error, where each is in its worst format."""
    worst = [max(0.0, *(e.value for e in found[layer].values())) for layer in largest]
    half, total, few = sum(worst) / 2, 0.0, 0
    while few < len(worst) and total < half:
        total += worst[few]
        few += 1
    how = f"{one_line(row.measure)} by {one_line(row.estimator)} on {count(row.samples, 'search sample')}"
    if not few:
        return f"No layer does anything to the outputs ({how})."
    makes = "makes" if few == 1 else "make"
    return f"{count(few, 'layer')} of {len(worst):,} {makes} half of the error, the most sensitive being {one_line(largest[0])} ({how})."
