"""The slices of a recipe on its evaluation samples, and its gates with one for each part that they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quant.data.slices import Members, sliced
from quant.engine.bind import Bound
from quant.engine.prepare import Prepared
from quant.errors import QuantError

Parts = Mapping[str, Mapping[str, Members]]
"""Title of slices -> name of a part -> which samples are in it, `[samples]`."""


def parts_of(bound: Bound, prepared: Prepared) -> Parts:
    """The slices that the recipe asks for.

    Raises:
        DataError: The samples cannot be cut so.
    """
    found = {}
    for number, spec in enumerate(bound.loaded.recipe.evaluation.slices):
        try:
            found[spec.title] = sliced(prepared.data.roles["evaluation"], spec)
        except QuantError as error:
            raise error.at(bound.loaded.where(("evaluation", "slices", number))) from error
    return found


def members_of(parts: Parts) -> dict[str, Members]:
    """Name of a part -> which samples are in it."""
    return {name: members for slices in parts.values() for name, members in slices.items()}


def with_slices(bound: Bound, parts: Parts) -> Bound:
    """`bound` with one gate for each part that a gate of the recipe is to hold in; such a gate names just that part in its `slices`."""
    gates = []
    for name, spec in bound.gates:
        within = [part for title in spec.slices for part in parts[title]]
        gates += [(name, spec.model_copy(update={"slices": (part,)})) for part in within] or [(name, spec)]
    return replace(bound, gates=tuple(gates))
