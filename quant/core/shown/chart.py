"""A document as a chart: what is drawn, as data, and one way to draw it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from quant.core.shown.table import text

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLOURS = ("#3b82c4", "#d97706", "#2f9e6e", "#b0569a", "#8a7bd1", "#a86b32", "#6b8e23", "#c2504b")
"""Told apart on light pages and on dark ones, by most of those who see colours otherwise, too."""
_INK, _FAINT = "#7d7d7d", "rgba(128,128,128,.28)"
_MOST = 60
_ROW, _AROUND = 20, 130
_LONGEST = 30


@dataclass(frozen=True)
class Series:
    """Values of one kind.

    Args:
        name: What they are.
        x: Where they are from left to right; the values of bars.
        y: Where they are from bottom to top; the labels of bars.
        low: How far the truth may lie below each value (below in y of points and lines, in x of bars); empty: not known.
        high: How far above.
        said: What else is told of each.
        joined: Whether a line goes through them.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[float | str]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    said: Sequence[str] = ()
    joined: bool = False


@dataclass(frozen=True)
class Chart:
    """What is drawn.

    Args:
        title: What it shows.
        across: What stands from left to right.
        up: What stands from bottom to top.
        series: What is drawn.
        kind: `bars` lie, one row for a label, so that long names can be read; `points` stand anywhere.
        log: Axes that are logarithmic: `x`, `y` or `xy`.
        limits: Where a dashed line is drawn across: its name -> the value, in x of bars and in y of points.
    """

    title: str
    across: str
    up: str
    series: Sequence[Series]
    kind: Literal["bars", "points"] = "points"
    log: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)

    def figure(self, most: int = _MOST) -> go.Figure:
        """The chart, drawn.

        Args:
            most: How many rows of bars at most: those with the largest values, and what is left out is said.
        """
        import plotly.graph_objects as go  # noqa: PLC0415 - heavy

        made = go.Figure()
        title, series = (self.title, self.series) if self.kind == "points" else self._largest(most)
        for place, one in enumerate(series):
            made.add_trace(self._trace(go, one, COLOURS[place % len(COLOURS)]))
        for name, value in self.limits.items():
            draw = made.add_vline if self.kind == "bars" else made.add_hline
            draw(value, line_dash="dash", line_color=_INK, annotation_text=text(name), annotation_font_color=_INK)
        labels = list(dict.fromkeys(label for one in series for label in one.y))
        made.update_layout(**self._layout(title, len(labels)))
        if self.kind == "bars":  # labels may be cut alike, and stay apart
            made.update_yaxes(tickvals=[text(str(label)) for label in labels], ticktext=[text(_short(str(label))) for label in labels])
        return made

    def _largest(self, most: int) -> tuple[str, Sequence[Series]]:
        """The title and the series, with the `most` labels of the largest values alone."""
        best: dict[float | str, float] = {}
        for one in self.series:
            for label, value in zip(one.y, one.x, strict=True):
                best[label] = max(best.get(label, 0.0), abs(float(value)))
        if len(best) <= most:
            return self.title, self.series
        kept = set(sorted(best, key=lambda label: -best[label])[:most])
        return f"{self.title} (the {most} largest of {len(best)})", [_only(one, kept) for one in self.series]

    def _trace(self, go: Any, one: Series, colour: str) -> Any:
        errors = {}
        if one.low or one.high:
            values = {"type": "data", "array": list(one.high or one.low), "arrayminus": list(one.low or one.high), "color": _INK, "thickness": 1.2}
            errors = {"error_x" if self.kind == "bars" else "error_y": values}
        told = [text(said) for said in one.said] or None
        x, y = ([text(v) if isinstance(v, str) else v for v in values] for values in (one.x, one.y))
        if self.kind == "bars":
            told = told or [text(str(label)) for label in one.y]
            return go.Bar(name=text(one.name), x=x, y=y, orientation="h", marker_color=colour, hovertext=told, **errors)
        mode = "lines+markers" if one.joined else "markers"
        return go.Scatter(name=text(one.name), x=x, y=y, mode=mode, marker={"color": colour, "size": 9}, hovertext=told, **errors)

    def _layout(self, title: str, rows: int) -> dict[str, Any]:
        axis = {"gridcolor": _FAINT, "zerolinecolor": _INK, "linecolor": _INK, "automargin": True, "exponentformat": "power"}
        bars = self.kind == "bars"
        return {
            "title": {"text": text(title), "font": {"size": 15}, "x": 0.01, "xref": "container"},
            "template": "none",
            "font": {"color": _INK, "size": 12},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": COLOURS,
            "barmode": "group",
            "height": max(280, _ROW * rows * (1 if len(self.series) < 3 else 1.5) + _AROUND) if bars else 380,  # noqa: PLR2004 - room for three bars in a row
            "margin": {"l": 60, "r": 16, "t": 40, "b": 84 if len(self.series) > 1 else 52},
            "legend": {"orientation": "h", "y": 0, "yref": "container", "yanchor": "bottom", "x": 0, "xanchor": "left"},
            "showlegend": len(self.series) > 1,
            "xaxis": {**axis, "title": {"text": text(self.across)}, "type": "log" if "x" in self.log else None},
            "yaxis": {**axis, "title": {"text": text(self.up)}, "type": "log" if "y" in self.log else None, "autorange": "reversed" if bars else True},
        }


def positive(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis can show all of them.

    Example:
        >>> positive([0.1, 3.0]), positive([0.0, 1.0]), positive([])
        (True, False, False)
    """
    return bool(values) and all(math.isfinite(value) and value > 0 for value in values)


def _only(one: Series, kept: set[float | str]) -> Series:
    at = [place for place, label in enumerate(one.y) if label in kept]

    def of(values: Sequence[Any]) -> list[Any]:
        return [values[place] for place in at] if values else []

    return Series(one.name, of(one.x), of(one.y), of(one.low), of(one.high), of(one.said), one.joined)


def _short(label: str) -> str:
    """A label that leaves room for bars: the end of a long name tells layers apart."""
    return label if len(label) <= _LONGEST else "…" + label[-(_LONGEST - 1) :]
