"""The faces of a document: text, HTML, a data frame, a figure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from quant.core.shown.chart import Chart
from quant.core.shown.table import Table
from quant.errors import QuantError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


class Shown(ABC):
    """What a notebook can show: a document says its table and its chart, and gets all faces for that."""

    @abstractmethod
    def as_table(self) -> Table:
        """What it says, row by row."""

    @abstractmethod
    def as_chart(self) -> Chart:
        """What a picture of it shows."""

    def to_frame(self) -> pd.DataFrame:
        """It as a pandas data frame: all rows of `as_table`."""
        return self.as_table().frame()

    def plot(self, *, most: int = 60) -> go.Figure:
        """It as a plotly figure.

        Args:
            most: How many rows of bars at most, the largest first.

        Raises:
            QuantError: `most` is no such number.
        """
        if not isinstance(most, int) or most < 1:
            raise QuantError(f"`most` is a number of rows from 1 on, got {most!r}", where="plot")
        return self.as_chart().figure(most)

    def __str__(self) -> str:
        return self.as_table().plain()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.as_table().title}; print() shows it>"

    def _repr_html_(self) -> str:
        return self.as_table().html()
