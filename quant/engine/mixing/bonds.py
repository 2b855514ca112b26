"""What a recipe keeps, and what moves together: held to the model, and to itself, before any long work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quant.engine.mixing.ground import Ground
from quant.errors import DataError, PlanError
from quant.graph.layers import match_layers
from quant.graph.together import together
from quant.planner.problem import Effect, Problem
from quant.report.words import count

_PAIR = 2
EIGHT_BITS = ("int8", "fp8")
"""Formats of which a plan has one alone."""


@dataclass(frozen=True)
class Bonds:
    """What binds the formats of layers.

    Args:
        pins: Layer -> the format that it is kept in.
        groups: Layers that share one format.
    """

    pins: Mapping[str, str]
    groups: tuple[tuple[str, ...], ...]


def bonds(ground: Ground) -> Bonds:
    """What the recipe and the structure of the model bind, for a target.

    Raises:
        DataError: There are too few search samples to find a plan by.
        PlanError: A pattern matches no layer, a layer is kept where it cannot run, or in two formats, or what moves together cannot; with the line.
    """
    spec, loaded = ground.bound.spec, ground.workshop.bound.loaded
    if (have := len(ground.workshop.prepared.data.roles["search"])) < _PAIR:
        what = f"{count(have, 'search sample')}: how sure an effect is cannot be told"
        raise DataError(what, where=loaded.where(("data", "splits", "search")), hint="give at least 2; a plan that holds up takes hundreds")
    layers = ground.workshop.prepared.layers
    for number, patterns in enumerate(spec.together):
        where = loaded.where(("plan", "together", number))
        if len(match_layers(layers, patterns, where=where)) < _PAIR:
            raise PlanError(f"{', '.join(patterns) or '[]'} names no two layers that could move together", where=where, hint="a group has at least two layers")
    match_layers(layers, spec.apart, where=loaded.where(("plan", "apart")))
    groups = tuple(group.layers for group in together(layers, ground.engine.dialect, more=spec.together, apart=spec.apart))
    found = Bonds(_pins(ground), groups)
    try:
        Problem({layer: dict.fromkeys(formats, Effect(0.0)) for layer, formats in ground.formats.items()}, groups=groups, pins=found.pins).units()
    except PlanError as error:
        raise error.at(loaded.where(("plan",))) from error
    return found


def _pins(ground: Ground) -> dict[str, str]:
    """Layer -> the format that the recipe keeps it in."""
    loaded = ground.workshop.bound.loaded
    pins: dict[str, str] = {}
    by: dict[str, str] = {}
    for pattern, kept in ground.bound.spec.keep.items():
        where = loaded.where(("plan", "keep", pattern))
        for name in sorted(match_layers(ground.workshop.prepared.layers, [pattern], where=where)):
            if kept not in ground.formats[name]:
                hint = f"on {ground.target} it can run in {', '.join(ground.formats[name])}; other formats need their scheme in the recipe"
                raise PlanError(f"layer {name!r} cannot be kept in {kept!r}", where=where, hint=hint)
            if pins.get(name, kept) != kept:
                what = f"layer {name!r} is kept in {pins[name]} by {by[name]!r}, and in {kept} by {pattern!r}"
                raise PlanError(what, where=where, hint="write patterns that do not overlap")
            pins[name], by[name] = kept, pattern
        if len(both := sorted(set(pins.values()) & set(EIGHT_BITS))) > 1:
            hint = "keep all layers in one of them"
            raise PlanError(f"layers are kept in {' and in '.join(both)}, of which a plan has one alone", where=where, hint=hint)
    return pins
