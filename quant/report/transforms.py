"""What became of the transforms of a candidate, for people."""

from __future__ import annotations

from quant.report.document import TransformRow
from quant.report.words import NOTHING


def transform_rows(steps: tuple[TransformRow, ...]) -> tuple[tuple[str, str, str, str, str, str], ...]:
    """(transform, kept, error before, error after, layers changed, reason) of each.

    Example:
        >>> transform_rows((TransformRow(transform="t", kept=True, before=0.01, after=0.005, reason="error divided by 2.00", layers={"a": "b"}),))
        (('t', 'yes', '1.0e-02', '5.0e-03', '1', 'error divided by 2.00'),)
    """
    return tuple((s.transform, "yes" if s.kept else "no", _error(s.before), _error(s.after), str(len(s.layers)), s.reason) for s in steps)


def _error(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1e}"
