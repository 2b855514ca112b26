"""What plans of a target cost: time by its engine or by a data sheet, size, effective bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quant.core.costs import ConversionTimes, CostTable, EngineProfile
from quant.costs import COSTS, CostModel, Setting
from quant.engine.candidates import Built
from quant.engine.machine import environment
from quant.engine.mixing.binding import TITLE
from quant.engine.mixing.changes import change_times
from quant.engine.mixing.ground import FLOAT, Ground
from quant.engine.summary import Outcome
from quant.engine.timing import timed_threads
from quant.errors import PlanError, TargetError
from quant.graph.work import model_work
from quant.stages.measure import requests
from quant.targets import Profiles

TIME, SIZE, BITS = "time", "size", "bits"
_TABLE = "costs.json"
_RUNS = 25
_FEEDS = 4
_BYTES, _MEASURED, _ROOFLINE, _EFFECTIVE = "bytes", "measured", "roofline", "bits"
_SMALL, _LARGE = 1_000, 1_000_000
_GIGABYTES = 8
"""What a core moves in a second, in GB, where neither a run nor a quantizer by itself shows what a change of format takes."""
_MOVED = 5
"""Bytes that are moved for each element that goes from FP32 to 8 bits, or back."""
_INT8 = "int8"
_WAYS = {"into": True, "out of": False}


@dataclass(frozen=True)
class Prices:
    """Costs by name, and what is to be said of them."""

    tables: Mapping[str, CostTable]
    notes: tuple[str, ...] = ()


def priced(ground: Ground, baseline: Built | None, uniform: Mapping[str, Outcome | None]) -> Prices:
    """Costs of every layer in every format that may be mixed.

    Args:
        ground: What plans stand on.
        baseline: The FP32 artifact; None where no engine is asked what it takes.
        uniform: Format -> what became of it alone; None where it was not tried.

    Raises:
        PlanError: Something has no price.
        TargetError: The engine does not tell what its kernels take.
    """
    workshop = ground.workshop
    feeding = workshop.prepared.feeding(workshop.bound, workshop.bound.loaded.recipe.latency.batch_size)
    feeds = requests(workshop.prepared.data.roles["search"], feeding, most=_FEEDS)
    work = model_work(workshop.prepared.path, feeds[0], dialect=ground.engine.dialect, samples=workshop.bound.loaded.recipe.latency.batch_size)
    setting = Setting(work, ground.formats, FLOAT, ground.target)
    tables = {SIZE: COSTS.make(_BYTES).table(setting), BITS: COSTS.make(_EFFECTIVE).table(setting)}
    notes: list[str] = []
    try:
        tables[TIME] = _time(ground, setting, baseline, uniform, feeds)
    except (PlanError, TargetError) as error:
        if ground.bound.spec.minimize == TIME or TIME in ground.bound.spec.within:
            raise
        notes.append(f"there are no times: {error.what}")
    return Prices(dict(sorted(tables.items(), reverse=True)), tuple(notes))


def _time(ground: Ground, setting: Setting, baseline: Built | None, uniform: Mapping[str, Outcome | None], feeds: Any) -> CostTable:
    chosen: CostModel | None = ground.bound.costs
    if chosen is None:
        chosen = COSTS.make(_ROOFLINE if ground.engine.ahead_of_time or not isinstance(ground.engine, Profiles) else _MEASURED)
    if not chosen.measures:
        body = ground.engine.dialect.body
        return chosen.table(setting) if body == FLOAT else _renamed(chosen, setting, body)
    engine = ground.engine
    if not isinstance(engine, Profiles):
        raise TargetError(f"{ground.target} does not tell what its kernels take", hint="take `costs: roofline`")
    assert baseline is not None, "an engine that runs here is asked for FP32's times, too"
    built = {FLOAT: baseline} | {f: out.built for f, out in uniform.items() if out is not None and out.built is not None}
    if missing := [f for f in ground.titles if f not in built]:
        raise PlanError(f"there is no time of {missing[0]}: its artifact could not be made")

    def produce(folder: Path) -> None:
        threads = timed_threads(ground.workshop)
        profiles = {f: engine.profile(b.artifact, b.folder, feeds, ground.workshop.layer_outputs, threads=threads, runs=_RUNS) for f, b in built.items()}
        unseen = _unseen(profiles)
        alone = change_times(engine, threads=threads, runs=_RUNS) if _INT8 in profiles and any(f == _INT8 for f, _ in unseen) else None
        conversions = {f: _conversions(profile, alone if f == _INT8 else None) for f, profile in profiles.items()}
        table = chosen.table(Setting(setting.work, setting.formats, setting.body, setting.target, profiles, conversions))
        table.model_copy(update={"source": table.source + _told(unseen)}).save(folder / _TABLE)

    key = {
        "artifacts": {f: b.artifact.digest for f, b in built.items()},
        "layers": {name: list(formats) for name, formats in ground.formats.items()},
        "threads": timed_threads(ground.workshop),
        "feeds": ground.workshop.prepared.data.roles["search"].digest,
        "batch": ground.workshop.bound.loaded.recipe.latency.batch_size,
        "machine": environment(),
    }
    return CostTable.load(ground.workshop.cache.stage(f"costs:{TITLE} on {ground.target}", key, produce) / _TABLE)


def _renamed(model: CostModel, setting: Setting, body: str) -> CostTable:
    """Prices where what is not quantized runs in `body`, under the name that plans have for it."""

    def to_body(f: str) -> str:
        return body if f == FLOAT else f

    asked = Setting(setting.work, {name: tuple(map(to_body, fs)) for name, fs in setting.formats.items()}, body, setting.target)
    table = model.table(asked)
    back = {body: FLOAT}
    layers = tuple(row.model_copy(update={"costs": {back.get(f, f): cost for f, cost in row.costs.items()}}) for row in table.layers)
    boundaries = tuple(
        b.model_copy(update={"prices": {">".join(back.get(part, part) for part in key.split(">")): price for key, price in b.prices.items()}})
        for b in table.boundaries
    )
    return CostTable(**{**{name: getattr(table, name) for name in type(table).model_fields}, "body": FLOAT, "layers": layers, "boundaries": boundaries})


def _unseen(profiles: Mapping[str, EngineProfile]) -> tuple[tuple[str, str], ...]:
    """(format, way) of the changes that no run shows, of formats that have codes at all: where only weights have fewer bits, nothing changes."""
    coded = [f for f, profile in profiles.items() if f != FLOAT and any(kernel.codes for kernel in profile.kernels)]
    return tuple((f, way) for f in coded for way, codes in _WAYS.items() if not _converting(profiles[f], codes=codes))


def _told(unseen: Sequence[tuple[str, str]]) -> str:
    """What is to be said of changes that no run shows.

    Example:
        >>> _told([("int8", "out of")])
        '; changes out of int8 are in none of its runs, and were measured by themselves'
    """
    found = []
    for here, how in ((True, "were measured by themselves"), (False, f"are estimated at {_GIGABYTES} GB a second")):
        names = ", ".join(f"{way} {f}" for f, way in unseen if (f == _INT8) == here)
        found += [f"; changes {names} are in none of its runs, and {how}"] if names else []
    return "".join(found)


def _conversions(profile: EngineProfile, alone: ConversionTimes | None) -> ConversionTimes:
    """What it takes to bring a tensor into the format of `profile` and back, by the kernels in it that do nothing else; else by what was measured alone."""

    def seen(*, codes: bool) -> tuple[tuple[int, float], ...]:
        pairs = _converting(profile, codes=codes)
        if not pairs and alone is not None:
            return alone.enter if codes else alone.leave
        rate = sum(ms for _, ms in pairs) / sum(n for n, _ in pairs) if pairs else _MOVED / (_GIGABYTES * 1e6)
        return ((_SMALL, _SMALL * rate), (_LARGE, _LARGE * rate))

    return ConversionTimes(enter=seen(codes=True), leave=seen(codes=False))


def _converting(profile: EngineProfile, *, codes: bool) -> list[tuple[int, float]]:
    """(elements, milliseconds) of the kernels that do nothing but bring a tensor into codes, or out of them."""
    return [(k.elements, k.ms) for k in profile.kernels if k.converts is not None and k.codes == codes and k.elements > 0]
