"""From a recipe's data section to the samples of each role."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from quant.core.digest import digest_of, digest_of_arrays
from quant.core.progress import tracked
from quant.core.registry import did_you_mean
from quant.core.signature import Signature
from quant.data.adapt import Adaptation, adaptation, data_inputs
from quant.data.checks import BatchAxes, check_samples
from quant.data.conditions import keeps
from quant.data.labels import LabelReader, LabelValue, Where
from quant.data.processors import PROCESSORS, Cutting, Fitted, Processor, Setting
from quant.data.record import Record, Rows
from quant.data.rows import ALL, read_rows
from quant.data.rows.functions import read_function
from quant.data.samples import Feed, Sample, Samples
from quant.data.splits import ROLES, Entry, assign, default_notes
from quant.errors import DataError, QuantError, RecipeError
from quant.recipe.schema import DataSpec, Label, OtherData, RowsSpec, Source, Use

_KEPT_BYTES = 256 << 20  # made samples that a role keeps, so that later passes need not decode them again


@dataclass(frozen=True)
class RoleSamples:
    """The samples of one role, made when they are asked for.

    Args:
        role: `train`, `calibration`, `search` or `evaluation`.
        entries: Which rows they are, in order.
        pools: Named split -> rows.
        processor: Makes feeds of a row.
        digest: SHA-256 (hex) over inputs, labels and processing.
        adapt: How feeds are brought to the model.
    """

    role: str
    entries: tuple[Entry, ...]
    pools: Mapping[str, Rows]
    processor: Processor
    digest: str
    adapt: Adaptation = field(default_factory=Adaptation)
    _kept: dict[int, tuple[Feed, ...]] = field(default_factory=dict, compare=False, repr=False)
    _bytes: list[int] = field(default_factory=lambda: [0], compare=False, repr=False)

    @property
    def pad_values(self) -> Mapping[str, int | float]:
        """The model's input -> what fills it up in a batch of feeds that differ in length."""
        return {name: value for old, value in self.processor.traits.pad_values.items() if (name := self.adapt.names.get(old, old)) is not None}

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, position: int, /) -> Sample:
        entry = self.entries[position]
        return Sample(entry.index, self._feeds(position % len(self.entries)), entry.label)

    def __iter__(self) -> Iterator[Sample]:
        return (self[position] for position in range(len(self)))

    def column(self, name: str) -> list[Any]:
        """Each sample's value of a column of the data, in the samples' order.

        Raises:
            DataError: There is no such column.
        """
        return [self.record(position).value(name) for position in range(len(self))]

    def display(self, position: int) -> str:
        """A few words that show a person which sample it is."""
        return self.processor.display(self.record(position))

    def record(self, position: int) -> Record:
        """The row that a sample is made of, as it lies in the source."""
        entry = self.entries[position]
        return self.pools[entry.pool][entry.index]

    def _feeds(self, position: int) -> tuple[Feed, ...]:
        if position in self._kept:
            return self._kept[position]
        feeds = tuple(self.adapt.apply(feed) for feed in self.processor.feeds(self.record(position)))
        size = sum(array.nbytes for feed in feeds for array in feed.values())
        if self._bytes[0] + size <= _KEPT_BYTES:
            self._bytes[0] += size
            self._kept[position] = feeds
        return feeds


@dataclass(frozen=True)
class Data:
    """The samples of a recipe.

    Args:
        roles: Role -> its samples.
        digest: SHA-256 (hex) over all roles.
        notes: What should be said aloud: fewer samples than asked for, duplicates that were dropped, ...
        where: Place of `data.inputs` in the recipe, for messages.
    """

    roles: Mapping[str, Samples]
    digest: str
    notes: tuple[str, ...] = ()
    where: str = ""

    def bind(self, signature: Signature, *, state_inputs: Collection[str] = (), batch_axes: BatchAxes | None = None) -> Data:
        """These data as the model takes them, checked against its signature.

        A nameless input gets the name of the model's only one, inputs that the model does not take and the processor calls
        optional are left out, and types change where the processor allows it.

        Raises:
            DataError: Samples do not fit the model.
        """
        inputs = data_inputs(signature, state_inputs)
        roles: dict[str, Samples] = {}
        notes = list(self.notes)
        for role, samples in self.roles.items():
            bound = samples
            if isinstance(samples, RoleSamples):
                bound = replace(samples, adapt=adaptation(samples[0].feeds[0], inputs, samples.processor.traits), _kept={}, _bytes=[0])
            try:
                notes.extend(check_samples(bound, signature, state_inputs=state_inputs, batch_axes=batch_axes))
            except QuantError as error:
                raise error.at(self.where) from error
            roles[role] = bound
        return replace(self, roles=roles, notes=tuple(notes))


def load_data(spec: DataSpec, *, base: Path, where: Where, trust_code: bool = False, model_folder: Path | None = None) -> Data:
    """The samples that a recipe's `data` section describes.

    Args:
        spec: The section.
        base: Folder of the recipe; relative paths start there.
        where: Gives `recipe.yaml:LINE` for a location such as `("data", "splits", "calibration")`.
        trust_code: Whether code that the recipe names may run.
        model_folder: Folder of a Hugging Face model, in which a text processor finds its tokenizer.

    Raises:
        DataError: The data cannot be read, are empty, lack labels or columns, or overlap between roles.
        RecipeError: The section asks for what makes no sense.
        SourceError: The source cannot be had.
    """
    opened = _open_source(spec, spec.inputs, spec.label, where, _Opening(base, trust_code, model_folder))
    own = _own_sources(spec, opened, where)
    roles, notes = assign(opened.entries, spec, where, own={role: source.entries for role, source in own.items()})
    _fit(opened, own, roles, where)
    samples: dict[str, Samples] = {}
    for role, chosen in roles.items():
        source = own.get(role, opened)
        samples[role] = RoleSamples(role, chosen, source.pools, source.processor, _digest(chosen, source.processor))
    digest = digest_of({role: chosen.digest for role, chosen in samples.items()})
    return Data(samples, digest, (*default_notes(spec.splits, tuple(opened.pools)), *notes), where(("data", "inputs")))


@dataclass(frozen=True)
class _Opening:
    """What every source of a recipe is opened with."""

    base: Path
    trust_code: bool
    model_folder: Path | None


@dataclass(frozen=True)
class _Opened:
    """A source whose rows have been looked at: named split -> rows, what makes inputs of them, and the rows that are kept."""

    pools: Mapping[str, Rows]
    processor: Processor
    entries: list[Entry]
    opening: _Opening


def _open_source(spec: RowsSpec, inputs: Use | Processor, label: Label | None, where: Where, opening: _Opening, *, labelled: bool = True) -> _Opened:
    """Read a source; `where` gives the places of `("data", ...)`, also when that section stands elsewhere in the recipe."""
    place = where(("data",))
    pools = _read(spec, opening.base, trust_code=opening.trust_code, where=place)
    if not any(map(len, pools.values())):
        raise DataError("the data set is empty", where=place)
    _check_columns(pools, place)
    first = next(rows for rows in pools.values() if len(rows))
    label_column = (label.column if label else None) or first.label_column
    setting = Setting(opening.base, first.columns, label_column, opening.model_folder, opening.trust_code, where(("data", "inputs")))
    if isinstance(inputs, Use):
        processor = _make_processor(inputs, where)
        processor.open(setting)
    else:
        processor = inputs
        setting.need(processor.columns)
    if isinstance(processor, Cutting):
        pools = _cut(pools, processor, place)
        first = next(rows for rows in pools.values() if len(rows))
    _check_conditions(spec, first, where)
    default = (first.label_column or processor.traits.label_column) if labelled else None
    labels = LabelReader(label, columns=first.columns, default=default, classes=_classes(pools) if labelled else None, where=where)
    entries = _entries(spec, pools, processor, labels)
    if not entries:
        raise DataError(f"no row is left: none of {sum(map(len, pools.values()))} meets `data.where`", where=where(("data", "where")))
    return _Opened(pools, processor, entries, opening)


def _own_sources(spec: DataSpec, main: _Opened, where: Where) -> dict[str, _Opened]:
    """Role -> its own source, for the roles that have one."""
    found = {}
    for role in ROLES:
        split = getattr(spec.splits, role)
        if split is None or split.data is None:
            continue
        other: OtherData = split.data

        def inside(location: tuple[str | int, ...], role: str = role) -> str:
            return where(("data", "splits", role, *location))

        # Ranges need no labels, so calibration data need not have any.
        labelled = role != "calibration" or other.label is not None
        label = other.label or (spec.label if labelled else None)
        found[role] = _open_source(other, other.inputs or main.processor, label, inside, main.opening, labelled=labelled)
    return found


def _read(spec: RowsSpec, base: Path, *, trust_code: bool, where: str) -> Mapping[str, Rows]:
    from quant.data import sources  # noqa: PLC0415 - `import quant.data` stays light

    try:
        is_function = spec.kind == "function" or isinstance(sources.parse(spec.source), sources.FunctionSource)
    except QuantError as error:
        raise error.at(where) from error
    if is_function:
        return read_function(spec, base=base, trust_code=trust_code, where=where)
    files = spec.files if isinstance(spec, DataSpec) else {}
    if not files:
        return read_rows(spec, sources.fetch(Source(source=spec.source, file=spec.file, sha256=spec.sha256), base=base, where=where), where=where)
    if spec.sha256 is not None:
        sources.fetch(Source(source=spec.source, sha256=spec.sha256), base=base, where=where)
    pools: dict[str, Rows] = {}
    for name, file in files.items():
        path = sources.fetch(Source(source=spec.source, file=file), base=base, where=where)
        found = read_rows(spec, path, where=where)
        if set(found) != {ALL}:
            raise DataError(f"{file!r} has splits of its own: {', '.join(sorted(found))}", where=where, hint="use `data.file` instead of `data.files`")
        pools[name] = found[ALL]
    return pools


def _cut(pools: Mapping[str, Rows], processor: Cutting, where: str) -> Mapping[str, Rows]:
    """The pieces that `processor` makes of the rows."""
    try:
        return {name: processor.cut(rows) if len(rows) else rows for name, rows in pools.items()}
    except QuantError as error:
        raise error.at(where) from error


def _check_columns(pools: Mapping[str, Rows], where: str) -> None:
    filled = [(name, rows) for name, rows in pools.items() if len(rows)]
    first_name, first = filled[0]
    for name, rows in filled[1:]:
        if set(rows.columns) != set(first.columns):
            odd = ", ".join(sorted(set(rows.columns) ^ set(first.columns)))
            raise DataError(f"the splits {first_name} and {name} have different columns: {odd}", where=where)


def _make_processor(use: Use, where: Where) -> Processor:
    place = where(("data", "inputs"))
    try:
        return PROCESSORS.make(use.kind, use.options)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        message = f"option {name!r} of processor {use.kind!r}: {first['msg']}, got {first['input']!r}"
        known = PROCESSORS.get(use.kind).Options.model_fields
        hint = did_you_mean(name, tuple(known)) if first["type"] == "extra_forbidden" else ""
        raise RecipeError(message, where=place, hint=hint) from error
    except QuantError as error:
        raise error.at(place) from error


def _check_conditions(spec: RowsSpec, rows: Rows, where: Where) -> None:
    for number, condition in enumerate(spec.where):
        if condition.column not in rows.columns:
            hint = did_you_mean(condition.column, rows.columns)
            raise DataError(f"no column {condition.column!r} in the data", where=where(("data", "where", number)), hint=hint)


def _classes(pools: Mapping[str, Rows]) -> tuple[str, ...] | None:
    named = {name for rows in pools.values() for name in rows.classes or ()}
    return tuple(sorted(named)) or None


def _entries(spec: RowsSpec, pools: Mapping[str, Rows], processor: Processor, labels: LabelReader) -> list[Entry]:
    entries = []
    for pool, rows in pools.items():
        for index in tracked(range(len(rows)), f"reading {rows.name}"):
            record = rows[index]
            if keeps(spec.where, record):
                entries.append(Entry(pool, index, processor.content(record).hex(), labels.read(record), record.place))
    return entries


def _fit(main: _Opened, own: Mapping[str, _Opened], roles: Mapping[str, tuple[Entry, ...]], where: Where) -> None:
    """Let every processor that learns numbers learn them from the train split."""
    for processor in {id(source.processor): source.processor for source in (main, *own.values())}.values():
        if not isinstance(processor, Fitted) or not processor.needs_fit:
            continue
        if "train" not in roles:
            hint = "add `data.splits.train`, or give the numbers in the processor's options"
            raise RecipeError(f"the processor {processor.kind!r} learns from the train split, and there is none", where=where(("data", "inputs")), hint=hint)
        pools = own.get("train", main).pools
        processor.fit(pools[entry.pool][entry.index] for entry in roles["train"])


def _digest(entries: tuple[Entry, ...], processor: Processor) -> str:
    return digest_of({"processor": processor.digest, "samples": [[entry.content, _label_key(entry.label)] for entry in entries]})


def _label_key(label: LabelValue) -> object:
    return digest_of_arrays({"label": label}) if isinstance(label, np.ndarray) else label
