"""Solving a program with HiGHS, to the last digit that counts.

HiGHS keeps to absolute tolerances (1e-7 in a row, 1e-6 in the objective), and errors may be 1e-9 as well as 1e+3. So rows are
written in units of what their budget leaves, and objectives in units of their largest coefficient; choices that alone exceed a
budget are ruled out beforehand, and what comes out is held to every budget in plain arithmetic.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quant.errors import PlanError
from quant.planner.program import Linear, Program, Quantity, Row

CLOSE = 1e-9
"""Share of a budget by which sums of floats may exceed it."""
_OBJECTIVE_SCALE = 1e3
_RESCALED = 1e3
_MOST_CUTS = 50
_SOLVED, _RAN_OUT, _INFEASIBLE = 0, 1, 2
_LEAST_SECONDS = 1e-3


@dataclass(frozen=True)
class Limit:
    """A quantity that may not exceed `most`."""

    of: Quantity
    most: float

    def keeps(self, value: float) -> bool:
        """Whether `value` is within the limit, but for the rounding of sums."""
        return value <= self.most + CLOSE * abs(self.most)


@dataclass(frozen=True)
class Answer:
    """What HiGHS found: layer -> format, the columns that are 1, and whether it proved that nothing is better."""

    choices: dict[str, str]
    columns: tuple[int, ...]
    proven: bool


def solve(program: Program, objective: Quantity, limits: Sequence[Limit], *, time_limit: float | None = None) -> Answer | None:
    """The choice that makes `objective` least within `limits`; None when there is none.

    Raises:
        PlanError: The time ran out before any plan was found.
    """
    ends = None if time_limit is None else time.monotonic() + time_limit
    answer = _within(program, objective, limits, ends)
    scale = _largest(program, objective, np.ones(program.columns))
    while answer is not None and answer.proven:
        # With an upper bound on the objective, what alone exceeds it falls away, and the rest can be told apart more finely.
        bounded = [*limits, Limit(objective, objective.value(answer.choices))]
        largest = _largest(program, objective, _Ruled(program, bounded).upper)
        if largest == 0 or largest * _RESCALED > scale:
            break
        scale = largest
        answer = _within(program, objective, bounded, ends) or answer
    return answer


class _Ruled:
    """Limits as rows in units of what they leave, and the choices that they rule out."""

    def __init__(self, program: Program, limits: Sequence[Limit]) -> None:
        self.rows: list[Row] = []
        self.upper: npt.NDArray[np.float64] = np.ones(program.columns)
        self.impossible = False
        for limit in limits:
            self._write(program, limit)

    def _write(self, program: Program, limit: Limit) -> None:
        if limit.most == math.inf:
            return
        base, shifted = _shifted(program, limit.of.linear)
        gains = sum(v for v in shifted.values() if v < 0)
        left = limit.most - base - gains
        slack = CLOSE * max(abs(limit.most), abs(base))
        if left < -slack:
            self.impossible = True
            return
        for column, coefficient in shifted.items():
            if coefficient > left + slack:
                self.upper[column] = 0
        kept = {c: v for c, v in shifted.items() if v != 0 and self.upper[c] > 0}
        if kept:
            unit = left if left > slack else max(map(abs, kept.values()))
            self.rows.append(Row({c: v / unit for c, v in kept.items()}, -math.inf, (limit.most - base) / unit))


def _shifted(program: Program, of: Linear) -> tuple[float, dict[int, float]]:
    """(the least that choices can make of `of`, unit by unit; what each column adds to that)."""
    least, shifted = of.constant, dict(of.coefficients)
    for unit in range(len(program.units)):
        columns = program.columns_of(unit)
        lowest = min(shifted.get(c, 0.0) for c in columns)
        least += lowest
        for column in columns:
            shifted[column] = shifted.get(column, 0.0) - lowest
    return least, shifted


def _largest(program: Program, objective: Quantity, upper: npt.NDArray[np.float64]) -> float:
    return max((abs(v) for c, v in _shifted(program, objective.linear)[1].items() if upper[c] > 0), default=0.0)


def _within(program: Program, objective: Quantity, limits: Sequence[Limit], ends: float | None) -> Answer | None:
    ruled = _Ruled(program, limits)
    if ruled.impossible:
        return None
    cuts: list[Row] = []
    for _ in range(_MOST_CUTS):
        answer = _highs(program, objective, ruled, cuts, ends)
        if answer is None or all(limit.keeps(limit.of.value(answer.choices)) for limit in limits):
            return answer
        # HiGHS's tolerance let a budget be exceeded: this very plan is ruled out.
        cuts.append(Row(dict.fromkeys(answer.columns, 1.0), -math.inf, len(answer.columns) - 1.0))
    raise PlanError(f"more than {_MOST_CUTS} plans lie within rounding of a budget", hint="give a budget that is a little larger or smaller")


def _highs(program: Program, objective: Quantity, ruled: _Ruled, cuts: list[Row], ends: float | None) -> Answer | None:
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - heavy
    from scipy.sparse import coo_array  # noqa: PLC0415 - heavy

    rows = [*program.rows, *ruled.rows, *cuts]
    at = [(number, column, value) for number, row in enumerate(rows) for column, value in row.coefficients.items()]
    numbers, columns, values = (np.array(part) for part in zip(*at, strict=True))
    matrix = coo_array((values, (numbers, columns)), shape=(len(rows), program.columns)).tocsr()
    options: dict[str, float] = {"mip_rel_gap": 0.0}
    if ends is not None:
        options["time_limit"] = max(ends - time.monotonic(), _LEAST_SECONDS)
    found = milp(
        _scaled(program, objective, ruled.upper),
        integrality=[float(c in program.integer) for c in range(program.columns)],
        bounds=Bounds(np.zeros(program.columns), ruled.upper),
        constraints=LinearConstraint(matrix, [row.low for row in rows], [row.high for row in rows]),
        options=options,
    )
    if found.status == _INFEASIBLE:
        return None
    if found.x is None:
        raise PlanError("no plan was found in the time given", hint="give more time, or fewer formats")
    assert found.status in {_SOLVED, _RAN_OUT}, found.message
    best = tuple(max(program.columns_of(unit), key=lambda c: (found.x[c], -c)) for unit in range(len(program.units)))
    return Answer(program.read(best), best, found.status == _SOLVED)


def _scaled(program: Program, objective: Quantity, upper: npt.NDArray[np.float64]) -> list[float]:
    largest = _largest(program, objective, upper) or 1.0
    shifted = _shifted(program, objective.linear)[1]
    return [shifted.get(c, 0.0) * _OBJECTIVE_SCALE / largest if upper[c] > 0 else 0.0 for c in range(program.columns)]
