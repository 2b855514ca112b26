"""Which rows are kept: the conditions of `data.where`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from quant.data.record import Record, is_missing, is_number
from quant.errors import DataError
from quant.recipe.schema import Condition


def keeps(conditions: Sequence[Condition], record: Record) -> bool:
    """Whether `record` meets every condition; a missing value meets none.

    Raises:
        DataError: A bound is asked of a value that is no number.
    """
    return all(_meets(condition, record) for condition in conditions)


def _meets(condition: Condition, record: Record) -> bool:
    value = record.value(condition.column)
    if is_missing(value):
        return False
    if condition.equals is not None and not same_value(value, condition.equals):
        return False
    if condition.any_of is not None and not any(same_value(value, wanted) for wanted in condition.any_of):
        return False
    if condition.above is None and condition.below is None and condition.magnitude_above is None:
        return True
    number = number_of(value, record, condition.column)
    above = condition.above is None or number > condition.above
    below = condition.below is None or number < condition.below
    return above and below and (condition.magnitude_above is None or abs(number) > condition.magnitude_above)


def same_value(value: Any, wanted: str | float) -> bool:
    """Whether a value of a table is the one that a recipe writes; `1`, `1.0` and `"1"` are the same.

    Example:
        >>> same_value("1", 1), same_value(1.0, "1"), same_value("a", "b")
        (True, True, False)
    """
    return value_key(value) == value_key(wanted)


def value_key(value: Any) -> float | str:
    """`value` in a form in which values of tables and of recipes can be compared."""
    if is_number(value):
        return float(value)
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text  # "nan" and "infinity" are words here


def number_of(value: Any, record: Record, column: str) -> float:
    """`value` as a number.

    Raises:
        DataError: It is none; the message names the row.
    """
    if is_number(value):
        return float(value)
    try:
        return float(str(value))
    except ValueError as error:
        raise DataError(f"{column!r} is no number: {str(value)[:60]!r}", where=record.place) from error
