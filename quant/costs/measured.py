"""`measured`: what the engine's own profiler says of the model in FP32, and in each format throughout.

A kernel's time belongs to the layers that it computes, by their products where there are several. A kernel that brings a tensor into
another format is the price of that tensor's boundary. What is the same kernel in every profile (a normalization, say) is the rest,
whatever the plan. Everything else (a sum that runs on codes in one format alone, an activation function that is no kernel of its own in
another) belongs to the nearest layer before it. A profiler takes time itself: where kernels together exceed the whole run, they are shortened.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar

from quant.core.costs import Boundary, CostTable, Crossing, EngineProfile, KernelTime, LayerCost, ModelWork, crossing, time_of
from quant.core.registry import Options as PluginOptions
from quant.costs import COSTS, Setting
from quant.errors import PlanError


@COSTS.add
class Measured:
    """Prices by the engine's own profiler."""

    kind: ClassVar[str] = "measured"
    measures: ClassVar[bool] = True
    quantity: ClassVar[str] = "time"

    class Options(PluginOptions):
        """Options of `measured`: none."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def table(self, setting: Setting) -> CostTable:
        """Milliseconds of every layer and boundary, as measured.

        Raises:
            PlanError: A format was not profiled, a layer cannot be seen in a profile, or no change of format was measured.
        """
        wanted = list(dict.fromkeys((setting.body, *(f for formats in setting.formats.values() for f in formats))))
        if missing := [f for f in wanted if f not in setting.profiles]:
            known = ", ".join(setting.profiles) or "none"
            raise PlanError(f"no profile of the engine was taken in {missing[0]}", where="cost model measured", hint=f"profiled: {known}")
        parts = {f: _Parts(setting.profiles[f], setting.work) for f in wanted}
        shared = set.intersection(*(set(part.others) for part in parts.values()))
        for part in parts.values():
            part.give_to_layers(shared)
        rows = tuple(LayerCost(layer=one.layer, costs={f: parts[f].cost(one.layer) for f in setting.formats[one.layer]}) for one in setting.work.layers)
        first = setting.profiles[setting.body]
        told = f"{first.target}, {first.machine}: medians of {first.runs} runs by its profiler"
        return CostTable(
            kind=self.kind,
            unit="ms",
            estimated=False,
            source=told,
            target=setting.target,
            model=setting.work.model,
            samples=setting.work.samples,
            body=setting.body,
            layers=rows,
            boundaries=tuple(_boundary(one, setting, parts) for one in setting.work.crossings),
            rest=sum(statistics.fmean(part.others[key] for part in parts.values()) for key in sorted(shared))
            + statistics.fmean(p.rest for p in parts.values()),
        )


class _Parts:
    """A profile, taken apart: milliseconds by layer, by tensor that is converted, and of everything else.

    Args:
        profile: The profile.
        work: What the layers do.
    """

    def __init__(self, profile: EngineProfile, work: ModelWork) -> None:
        self._profile = profile
        self.layers: dict[str, float] = {}
        self.enters: dict[str, float] = defaultdict(float)
        self.leaves: dict[str, float] = defaultdict(float)
        self.others: dict[tuple[str, str], float] = defaultdict(float)
        self.makes_codes: set[str] = set()
        self._near: dict[tuple[str, str], str | None] = {}
        self._extra: dict[str, float] = defaultdict(float)
        tensors = {name: one.tensor for one in work.crossings for name in (*one.also, one.tensor)}
        share = {one.layer: float(one.products or one.written) for one in work.layers}
        times = _without_profiler(profile)
        self.rest = max(profile.total_ms - sum(times), 0.0)
        for kernel, ms in zip(profile.kernels, times, strict=True):
            self._take(kernel, ms, tensors, share)

    @property
    def has_codes(self) -> bool:
        """Whether layers are given codes, or give them; that a mask, say, is a byte does not count."""
        return bool(self.makes_codes or self.enters)

    def _take(self, kernel: KernelTime, ms: float, tensors: Mapping[str, str], share: Mapping[str, float]) -> None:
        own = [layer for layer in kernel.layers if layer in share]
        if own:
            whole = sum(share[layer] for layer in own)
            for layer in own:
                self.layers[layer] = self.layers.get(layer, 0.0) + ms * share[layer] / whole
            if kernel.codes:
                self.makes_codes.update(own)
        elif kernel.converts is not None and kernel.converts in tensors:
            (self.enters if kernel.codes else self.leaves)[tensors[kernel.converts]] += ms
        else:
            key = kernel.kernel, kernel.op
            self.others[key] += ms
            self._near[key] = kernel.near

    def give_to_layers(self, shared: set[tuple[str, str]]) -> None:
        """Give what is not `shared` by all profiles to the nearest layers before it."""
        for key, ms in self.others.items():
            near = self._near[key]
            if key in shared:
                continue
            if near in self.layers and near is not None:
                self._extra[near] += ms
            else:
                self.rest += ms

    def cost(self, layer: str) -> float:
        """Milliseconds of `layer`, and of what follows it in this format alone.

        Raises:
            PlanError: The profile does not show the layer.
        """
        if layer not in self.layers:
            profile = self._profile
            raise PlanError(
                f"the profile of {profile.target} shows no kernel for it in {profile.scheme}",
                where=f"layer {layer!r}",
                hint="take another cost model, such as roofline or bytes",
            )
        return self.layers[layer] + self._extra[layer]


def _without_profiler(profile: EngineProfile) -> list[float]:
    """Times of the kernels, less what the profiler itself takes, so that they fit into the whole run.

    It takes as long for each kernel, and no longer than the shortest of them seemed to; if they still exceed the run (a machine that was
    busy while it was profiled), all are shortened by one factor.

    Example:
        >>> kernels = tuple(KernelTime(kernel=str(ms), op="", ms=ms) for ms in (1.0, 3.0, 8.0))
        >>> [_without_profiler(EngineProfile(target="", scheme="", machine="", runs=1, total_ms=whole, kernels=kernels)) for whole in (12.0, 10.5, 4.5)]
        [[1.0, 3.0, 8.0], [0.5, 2.5, 7.5], [0.0, 1.0, 3.5]]
    """
    times = [kernel.ms for kernel in profile.kernels]
    excess = sum(times) - profile.total_ms
    if excess <= 0:
        return times
    off = min(*times, excess / len(times))
    less = [ms - off for ms in times]
    return [ms * min(profile.total_ms / sum(less), 1.0) for ms in less] if sum(less) > 0 else less


def _boundary(one: Crossing, setting: Setting, parts: Mapping[str, _Parts]) -> Boundary:
    """The price of a tensor, for each pair of formats that it may be made and read in."""
    body = setting.body
    before = [body] if one.maker is None else list(setting.formats[one.maker])
    after = dict.fromkeys([f for reader in one.readers for f in setting.formats[reader]] + ([body] if one.open else []))
    prices: dict[str, float] = {}
    for made in before:
        for read in after:
            price = _price(one, made, read, setting, parts)
            if price > 0:
                prices[crossing(made, read)] = price
    return Boundary(tensor=one.tensor, maker=one.maker, readers=one.readers, open=one.open, prices=prices)


def _price(one: Crossing, made: str, read: str, setting: Setting, parts: Mapping[str, _Parts]) -> float:
    """Milliseconds to bring a tensor from codes of `made`, if it is in any, to codes of `read`, if these are wanted."""
    in_codes = one.maker is not None and _hands_on_codes(one, parts[made])
    if in_codes and made == read:
        return 0.0
    leave = _leave(one, made, setting, parts[made]) if in_codes else 0.0
    return leave + (_enter(one, read, setting, parts[read]) if parts[read].has_codes else 0.0)


def _hands_on_codes(one: Crossing, part: _Parts) -> bool:
    """Whether the maker's kernel gives codes, and nothing stands behind it that makes codes of floats."""
    return one.maker in part.makes_codes and one.tensor not in part.enters


def _enter(one: Crossing, read: str, setting: Setting, part: _Parts) -> float:
    if one.tensor in part.enters:
        return part.enters[one.tensor]
    if one.maker is None:
        return 0.0  # where all is in this format nothing converts it: the kernel that makes it does
    return time_of(one.elements, _conversions(read, setting)[0])


def _leave(one: Crossing, made: str, setting: Setting, part: _Parts) -> float:
    return part.leaves.get(one.tensor) or time_of(one.elements, _conversions(made, setting)[1])


_Times = tuple[tuple[int, float], ...]


def _conversions(number_format: str, setting: Setting) -> tuple[_Times, _Times]:
    if number_format not in setting.conversions:
        raise PlanError(f"what it takes to change into {number_format} and back was not measured", where="cost model measured")
    found = setting.conversions[number_format]
    return found.enter, found.leave
