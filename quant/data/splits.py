"""Splits: which samples a role gets.

Rows of equal inputs count once. Rows are put in the order of SHA-256(seed, inputs): as good as a shuffle, and it depends
neither on the order of rows in the file nor on how many there are, so that adding rows moves few of the others. `train`,
`calibration` and `search` are taken from the front of that order, `evaluation` from its end, and `rest` from between, so
that more calibration samples do not change which samples a counted evaluation looks at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quant.core.registry import did_you_mean
from quant.data.labels import LabelValue, Where
from quant.errors import DataError, RecipeError
from quant.recipe.schema import DataSpec, Split, Splits

ROLES = ("train", "calibration", "search", "evaluation")


@dataclass(frozen=True)
class Entry:
    """A row that may become a sample.

    Args:
        pool: The named split it lies in (`""`: the source names none).
        index: Its position there.
        content: SHA-256 (hex) of its inputs.
        label: Its label.
        place: How messages call it.
    """

    pool: str
    index: int
    content: str
    label: LabelValue
    place: str


def assign(
    entries: Sequence[Entry], spec: DataSpec, where: Where, *, own: Mapping[str, Sequence[Entry]] | None = None
) -> tuple[Mapping[str, tuple[Entry, ...]], tuple[str, ...]]:
    """Role -> its entries, in the order of the seed; and what should be said aloud.

    Args:
        entries: The rows of the recipe's data.
        spec: The recipe's data section.
        where: Gives the place in the recipe of a location.
        own: Role -> the rows of its own data, for roles that have some.

    Raises:
        DataError: A role is left without samples, names an unknown split, or shares inputs with another role.
        RecipeError: A number of samples makes no sense, or two roles want the rest of the same rows.
    """
    own = own or {}
    wanted = {role: split for role in ROLES if (split := getattr(spec.splits, role)) is not None}
    notes: list[str] = []
    found: dict[str, list[Entry]] = {}
    for role, rows in own.items():
        said: list[str] = []
        found.update(_shared_out(rows, {role: wanted.pop(role)}, spec, where, said))
        notes.extend(note if note.startswith(role) else f"{role}: {note}" for note in said)
        _check_filled(found, rows, where)
    if wanted:
        shared = _shared_out(entries, wanted, spec, where, notes)
        _check_filled(shared, entries, where)
        found.update(shared)
    notes.extend(_check_overlap(found, spec, where))
    return {role: tuple(found[role]) for role in ROLES if role in found}, tuple(notes)


def _shared_out(entries: Sequence[Entry], wanted: Mapping[str, Split], spec: DataSpec, where: Where, notes: list[str]) -> dict[str, list[Entry]]:
    """The rows of one source, shared out among the roles that take them from it."""
    pools = _pools(entries)
    _check(wanted, pools, where)
    kept = {name: _unique(pool, name, notes) for name, pool in pools.items()}
    if spec.limit is not None:
        kept = _limited(kept, spec.limit, spec.seed)
    found: dict[str, list[Entry]] = {}
    for of in sorted({split.of for split in wanted.values()}, key=lambda name: (name is None, name)):
        group = {role: split for role, split in wanted.items() if split.of == of}
        pool = _candidates(kept, of, found, notes)
        found.update(_share_out(shuffled(pool, spec.seed), group, notes))
    return found


def shuffled(entries: Sequence[Entry], seed: int) -> list[Entry]:
    """`entries` in the order of SHA-256(seed, inputs)."""
    return sorted(entries, key=lambda entry: hashlib.sha256(f"{seed}:{entry.content}".encode()).digest())


def _pools(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    pools: dict[str, list[Entry]] = {}
    for entry in entries:
        pools.setdefault(entry.pool, []).append(entry)
    return pools


def _check(wanted: Mapping[str, Split], pools: Mapping[str, object], where: Where) -> None:
    for role, split in wanted.items():
        place = where(("data", "splits", role))
        if split.of is not None and split.of not in pools:
            named = tuple(name for name in pools if name)
            raise DataError(f"no split {split.of!r} in the data", where=place, hint=did_you_mean(split.of, named) or "name splits with `data.files`")
        if isinstance(split.samples, float) and not 0 < split.samples <= 1:
            raise RecipeError(f"a share of {split.samples} of the rows", where=place, hint="a whole number of samples, a share between 0 and 1, or `rest`")
        if isinstance(split.samples, int) and split.samples < 1:
            raise RecipeError(f"{split.samples} samples", where=place, hint="a whole number of samples above 0, a share between 0 and 1, or `rest`")
    rest = [(split.of, role) for role, split in wanted.items() if split.samples == "rest"]
    for of, role in rest:
        other = next((name for pool, name in rest if pool == of and name != role), None)
        if other is not None:
            raise RecipeError(
                f"{role} and {other} both take the rest of the same rows", where=where(("data", "splits", other)), hint="give one of them a number or a share"
            )


def _unique(pool: Sequence[Entry], name: str, notes: list[str]) -> dict[str, Entry]:
    first: dict[str, Entry] = {}
    contradicting: list[tuple[Entry, Entry]] = []
    for entry in pool:
        known = first.setdefault(entry.content, entry)
        if known is not entry and not _same_label(known.label, entry.label):
            contradicting.append((known, entry))
    dropped = len(pool) - len(first)
    if dropped:
        notes.append(f"{dropped} duplicate {_rows(dropped)} dropped{f' from {name}' if name else ''}: the same inputs as an earlier row")
    if contradicting:
        one, two = contradicting[0]
        count = len(contradicting)
        example = f"{one.place} ({one.label!r}) and {two.place} ({two.label!r})"
        notes.append(f"{count} duplicate {_rows(count)} {'has' if count == 1 else 'have'} another label than the row that is kept, such as {example}")
    return first


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def _same_label(one: LabelValue, two: LabelValue) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(two)))


def _limited(pools: Mapping[str, dict[str, Entry]], limit: int, seed: int) -> dict[str, dict[str, Entry]]:
    union = {entry.content: entry for pool in pools.values() for entry in pool.values()}
    chosen = {entry.content for entry in shuffled(list(union.values()), seed)[:limit]}
    return {name: {content: entry for content, entry in pool.items() if content in chosen} for name, pool in pools.items()}


def _candidates(kept: Mapping[str, Mapping[str, Entry]], of: str | None, found: Mapping[str, Sequence[Entry]], notes: list[str]) -> list[Entry]:
    if of is not None:
        return list(kept[of].values())
    taken = {entry.content for entries in found.values() for entry in entries}
    union: dict[str, Entry] = {}
    for pool in kept.values():
        for content, entry in pool.items():
            union.setdefault(content, entry)
    repeated = sum(map(len, kept.values())) - len(union)
    if repeated:
        notes.append(f"{repeated} {_rows(repeated)} left out: the same inputs as a row of another split of the source")
    return [entry for content, entry in union.items() if content not in taken]


def _share_out(ordered: list[Entry], group: Mapping[str, Split], notes: list[str]) -> dict[str, list[Entry]]:
    front, back = 0, len(ordered)
    found: dict[str, list[Entry]] = {}
    for role in sorted(group, key=lambda role: group[role].samples == "rest"):  # those that take the rest come last
        samples = group[role].samples
        if samples == "rest":
            found[role] = ordered[front:back]
            continue
        asked = int(samples * len(ordered) + 1e-9) if isinstance(samples, float) else int(samples)
        count = min(asked, back - front)
        if count < asked:
            notes.append(f"{role}: asked for {asked} samples, got {count} (there are {len(ordered)} different rows to share)")
        if role == "evaluation":
            back -= count
            found[role] = ordered[back : back + count]
        else:
            found[role] = ordered[front : front + count]
            front += count
    return found


def _check_filled(found: Mapping[str, Sequence[Entry]], entries: Sequence[Entry], where: Where) -> None:
    for role, got in found.items():
        if not got:
            others = ", ".join(f"{other} {len(entries)}" for other, entries in found.items() if entries)
            different = len({entry.content for entry in entries})
            rows = f"{len(entries)} rows in all" + (f", {different} with inputs of their own" if different < len(entries) else "")
            what = f"{role} gets no samples: {rows}" + (f", of which others take {others}" if others else "")
            raise DataError(what, where=where(("data", "splits", role)), hint="ask for fewer samples for the others, or bring more data")


def _check_overlap(found: Mapping[str, Sequence[Entry]], spec: DataSpec, where: Where) -> list[str]:
    notes = []
    seen: dict[str, tuple[str, Entry]] = {}
    pairs: dict[tuple[str, str], list[tuple[Entry, Entry]]] = {}
    for role in ROLES:
        for entry in found.get(role, ()):
            other, known = seen.setdefault(entry.content, (role, entry))
            if known is not entry:
                pairs.setdefault((other, role), []).append((known, entry))
    for (one, two), shared in pairs.items():
        first, second = shared[0]
        what = f"{one} and {two} share {len(shared)} {'sample' if len(shared) == 1 else 'samples'}, such as {first.place} and {second.place}"
        if spec.overlap == "error":
            hint = "take these rows out of one of the splits, or set `data.overlap: allow` if you must"
            raise DataError(what, where=where(("data", "splits", two)), hint=hint)
        notes.append(f"{what}; the recipe allows it")
    return notes


def default_notes(splits: Splits, pools: Sequence[str]) -> tuple[str, ...]:
    """What to say when the source names splits and no role names one of them."""
    named = [name for name in pools if name]
    used = [role for role in ROLES if (split := getattr(splits, role)) is not None and split.of is not None]
    return (f"the splits {', '.join(named)} of the source are put together: no role says `of`",) if named and not used else ()
