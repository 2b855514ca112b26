"""Small problems, and their answers by trying everything."""

import itertools
import math
from types import SimpleNamespace

import pytest

from quant.core.costs import Boundary, CostTable, LayerCost
from quant.planner.problem import Effect, Problem


def table(costs, boundaries=(), *, rest=0.0, unit="ms", body="fp32"):
    """A cost table from layer -> format -> cost."""
    rows = tuple(LayerCost(layer=layer, costs=by_format) for layer, by_format in costs.items())
    return CostTable(kind="test", unit=unit, estimated=False, source="by hand", layers=rows, boundaries=tuple(boundaries), rest=rest, body=body)


def effects(values, error=0.0):
    """Layer -> format -> effect, from plain numbers."""
    return {layer: {name: Effect(value, error) for name, value in formats.items()} for layer, formats in values.items()}


def total(problem, name, choices):
    """A cost of `choices`, added up here from the plain numbers."""
    costs = problem.costs[name]
    spent = costs.rest + sum(row.costs[choices[row.layer]] for row in costs.layers)
    for b in costs.boundaries:
        before = costs.body if b.maker is None else choices[b.maker]
        for after in {*(choices[r] for r in b.readers), *([costs.body] if b.open else [])}:
            spent += b.prices.get(f"{before}>{after}", 0.0)
    return spent


def error(problem, choices):
    """The predicted error of `choices`, added up here."""
    found = sum(problem.effects[layer][name].value for layer, name in choices.items())
    for i in problem.interactions:
        if choices[i.one] in i.one_formats and choices[i.other] in i.other_formats:
            found += i.effect
    return found


def allowed(problem, choices):
    """Whether `choices` keep groups, pins and families."""
    groups = ([choices[layer] for layer in group if len(problem.effects[layer]) > 1] for group in problem.groups)
    used = sum(bool(family & set(choices.values())) for family in problem.families)
    return all(len(set(group)) <= 1 for group in groups) and all(choices[k] == v for k, v in problem.pins.items()) and used <= 1


def everything(problem):
    """Every allowed choice with its error and costs."""
    layers = list(problem.effects)
    for names in itertools.product(*(problem.effects[layer] for layer in layers)):
        choices = dict(zip(layers, names, strict=True))
        if allowed(problem, choices):
            yield choices, {"error": error(problem, choices)} | {name: total(problem, name, choices) for name in problem.costs}


def least(problem, of, within):
    """The least value of a quantity within budgets, by trying everything; None when nothing keeps to them."""
    found = [v[of] for _c, v in everything(problem) if all(v[name] <= most + 1e-9 * abs(most) for name, most in within.items())]
    return min(found, default=None)


def parts_of(number):
    """`number` layers, two formats, costs and errors that a hand can add."""
    layers = [f"layer{n}" for n in range(number)]
    return Problem(effects({x: {"fp32": 0.0, "int8": 1.0} for x in layers}), {"time": table({x: {"fp32": 2.0, "int8": 1.0} for x in layers})})


@pytest.fixture(scope="session")
def tools():
    return SimpleNamespace(table=table, effects=effects, everything=everything, least=least, parts_of=parts_of, boundary=Boundary, isclose=math.isclose)
