"""A problem as a 0/1 program: one column for each unit and format, continuous ones for what two choices cause together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from quant.core.costs import Boundary, CostTable
from quant.planner.problem import ERROR, Problem, Unit


@dataclass
class Linear:
    """A constant, and coefficients by column."""

    constant: float = 0.0
    coefficients: dict[int, float] = field(default_factory=dict)

    def add(self, column: int, coefficient: float) -> None:
        """Add to the coefficient of a column."""
        self.coefficients[column] = self.coefficients.get(column, 0.0) + coefficient


@dataclass(frozen=True)
class Quantity:
    """Something that can be minimized or bounded.

    Args:
        linear: It, over the columns of a program.
        value: It, of a choice of formats, in plain arithmetic.
    """

    linear: Linear
    value: Callable[[Mapping[str, str]], float]


@dataclass(frozen=True)
class Row:
    """`low <= sum of coefficients times columns <= high`."""

    coefficients: Mapping[int, float]
    low: float
    high: float


class Program:
    """The columns and rows of a problem, and its error, costs and switches as linear expressions over them.

    Columns `0 … binaries - 1` are the choices, one for each unit and format. The others follow from them: they lie between 0 and
    1, and take one of these values wherever they are worth money.

    Args:
        problem: What is to be planned.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.units = problem.units()
        self.choices = [(number, name) for number, unit in enumerate(self.units) for name in unit.formats]
        self.binaries = len(self.choices)
        self.columns = self.binaries
        self.integer = set(range(self.binaries))
        self.rows: list[Row] = []
        self._at = {choice: column for column, choice in enumerate(self.choices)}
        self._unit_of = {layer: number for number, unit in enumerate(self.units) for layer in unit.layers}
        self._both: dict[tuple[int, int], int] = {}
        for number, unit in enumerate(self.units):
            self.rows.append(Row({self._at[number, name]: 1.0 for name in unit.formats}, 1.0, 1.0))
        self._write_families()
        self.quantities = {ERROR: Quantity(self._error(), lambda choices: problem.error(choices).value)}
        self.quantities |= {name: Quantity(self._cost(table), table.total) for name, table in problem.costs.items()}
        self.switches = Quantity(self._switches(), problem.switches)

    def column(self, layer: str, number_format: str) -> int | None:
        """The column of a choice; None when the layer cannot be in that format."""
        return self._at.get((self._unit_of[layer], number_format))

    def columns_of(self, unit: int) -> list[int]:
        """The columns of a unit's formats."""
        return [self._at[unit, name] for name in self.units[unit].formats]

    def read(self, chosen: Iterable[int]) -> dict[str, str]:
        """Layer -> format, in the problem's order, when the columns `chosen` are 1."""
        by_unit = dict(self.choices[column] for column in chosen)
        return {layer: by_unit[self._unit_of[layer]] for layer in self.problem.effects}

    def _new(self) -> int:
        self.columns += 1
        return self.columns - 1

    def _write_families(self) -> None:
        families = [[c for c, (_unit, name) in enumerate(self.choices) if name in family] for family in self.problem.families]
        used = [(self._new(), columns) for columns in families if columns]
        for flag, columns in used:
            self.integer.add(flag)
            self.rows += [Row({column: 1.0, flag: -1.0}, -1.0, 0.0) for column in columns]
        if len(used) > 1:
            self.rows.append(Row({flag: 1.0 for flag, _columns in used}, 0.0, 1.0))

    def _error(self) -> Linear:
        found = Linear()
        for layer, formats in self.problem.effects.items():
            for name, effect in formats.items():
                if (column := self.column(layer, name)) is not None:
                    found.add(column, effect.value)
        for one in self.problem.interactions:
            pairs = ((self.column(one.one, f), self.column(one.other, g)) for f in sorted(one.one_formats) for g in sorted(one.other_formats))
            for a, b in ((a, b) for a, b in pairs if a is not None and b is not None):
                together = self._together(a, b, gain=one.effect < 0)
                if together is not None:
                    found.add(together, one.effect)
        return found

    def _together(self, a: int, b: int, *, gain: bool = False) -> int | None:
        """The column that is 1 when both choices are made; None when they cannot be.

        It is held from below only, as long as it costs: whatever is minimized or bounded presses it down. One that is a `gain` is held from above.
        """
        if a == b:
            return a
        if self.choices[a][0] == self.choices[b][0]:
            return None
        if gain:
            made = self._new()
            self.rows += [Row({made: 1.0, a: -1.0}, -1.0, 0.0), Row({made: 1.0, b: -1.0}, -1.0, 0.0)]
            return made
        key = min(a, b), max(a, b)
        if key not in self._both:
            self._both[key] = self._new()
            self.rows.append(Row({self._both[key]: 1.0, a: -1.0, b: -1.0}, -1.0, 1.0))
        return self._both[key]

    def _cost(self, table: CostTable) -> Linear:
        found = Linear(table.rest)
        for row in table.layers:
            for name, cost in row.costs.items():
                if (column := self.column(row.layer, name)) is not None:
                    found.add(column, cost)
        for boundary in table.boundaries:
            self._write_boundary(found, boundary, table.body)
        return found

    def _write_boundary(self, found: Linear, boundary: Boundary, body: str) -> None:
        for key, price in boundary.prices.items():
            before, after = key.split(">")
            if price == 0 or (boundary.maker is None and before != body):
                continue
            maker = None if boundary.maker is None else self.column(boundary.maker, before)
            if boundary.maker is not None and maker is None:
                continue
            readers = sorted({c for reader in boundary.readers if (c := self.column(reader, after)) is not None})
            open_to = boundary.open and after == body
            if maker is None and open_to:
                found.constant += price
            elif maker is None or open_to:
                sides = [maker] if maker is not None else readers
                if column := self._any(sides):
                    found.add(column[0], price)
            elif column := self._any_together(maker, readers):
                found.add(column[0], price)

    def _any(self, columns: list[int]) -> tuple[int] | None:
        """A column that is 1 when any of `columns` is."""
        if len(columns) <= 1:
            return (columns[0],) if columns else None
        made = self._new()
        self.rows += [Row({made: 1.0, column: -1.0}, 0.0, 1.0) for column in columns]
        return (made,)

    def _any_together(self, maker: int, readers: list[int]) -> tuple[int] | None:
        """A column that is 1 when `maker` is and any of `readers`."""
        possible = [c for c in readers if c == maker or self.choices[c][0] != self.choices[maker][0]]
        if not possible:
            return None
        if len(possible) == 1:
            together = self._together(maker, possible[0])
            return None if together is None else (together,)
        made = self._new()
        for reader in possible:
            both = {made: 1.0, maker: -1.0, reader: -1.0}  # of a unit with itself, one column
            self.rows.append(Row(both, 1.0 - len({maker, reader}), 1.0))
        return (made,)

    def _switches(self) -> Linear:
        found = Linear()
        pairs: dict[tuple[int, int], int] = {}
        for a, b in self.problem.pairs:
            one, other = sorted((self._unit_of[a], self._unit_of[b]))
            if one != other:
                pairs[one, other] = pairs.get((one, other), 0) + 1
        for (one, other), times in pairs.items():
            found.add(self._differ(self.units[one], one, self.units[other], other), float(times))
        return found

    def _differ(self, first: Unit, one: int, second: Unit, other: int) -> int:
        made = self._new()
        for name in sorted({*first.formats, *second.formats}):
            a, b = self._at.get((one, name)), self._at.get((other, name))
            for plus, minus in ((a, b), (b, a)):
                if plus is not None:
                    row = {made: 1.0, plus: -1.0} | ({minus: 1.0} if minus is not None else {})
                    self.rows.append(Row(row, 0.0, 2.0))
        return made
