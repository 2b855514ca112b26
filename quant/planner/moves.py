"""One group of layers in another format: which change is worth most."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from quant.core.documents import HIGHER_PRECISION
from quant.planner.problem import Problem, Unit

Choices = Mapping[str, str]
Move = tuple[Unit, str]


def best_move(problem: Problem, choices: Choices, *, cost: str, back: bool, refused: Collection[Move] = ()) -> Move | None:
    """The change of one group's format that recovers most error for its cost, or saves most cost for its error; None where there is none.

    Args:
        problem: Predicted effects and costs.
        choices: Layer -> format.
        cost: Name of the cost.
        back: Whether error is to be recovered, and not cost saved.
        refused: Changes that are not to be made.
    """
    error, price = problem.error(choices).value, problem.costs[cost].total(choices)
    moves = []
    for number, unit in enumerate(problem.units()):
        for name in unit.formats:
            trial = moved(choices, (unit, name))
            if name == choices[unit.layers[0]] or (unit, name) in refused or not _allowed(problem, trial):
                continue
            less_error, more_cost = error - problem.error(trial).value, problem.costs[cost].total(trial) - price
            if back and less_error > 0:
                moves.append((-less_error / max(more_cost, 1e-12 * max(price, 1.0)), number, name, unit))
            elif not back and more_cost < 0:
                moves.append((-less_error / -more_cost, number, name, unit))
    if not moves:
        return None
    *_, name, unit = min(moves, key=lambda move: move[:3])
    return unit, name


def moved(choices: Choices, move: Move) -> dict[str, str]:
    """`choices` after a change."""
    unit, number_format = move
    return {**choices, **dict.fromkeys(unit.layers, number_format)}


def quantizes(choices: Choices) -> bool:
    """Whether any layer is quantized.

    Example:
        >>> quantizes({"a": "fp32", "b": "int8"}), quantizes({"a": "fp32", "b": "fp16"})
        (True, False)
    """
    return any(name not in HIGHER_PRECISION for name in choices.values())


def named(units: Sequence[Unit]) -> str:
    """Layers of groups, for people.

    Example:
        >>> named([Unit(("q", "k", "v"), ("fp32", "int8"))])
        'q and 2 more'
    """
    layers = [layer for unit in units for layer in unit.layers]
    return layers[0] if len(layers) == 1 else f"{layers[0]} and {len(layers) - 1} more"


def _allowed(problem: Problem, choices: Choices) -> bool:
    used = set(choices.values())
    return sum(bool(used & family) for family in problem.families) <= 1
