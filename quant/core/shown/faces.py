"""The faces of a document: HTML, a data frame, a figure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from quant.core.shown.chart import Chart
from quant.core.shown.table import Table

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
        """
        return self.as_chart().figure(most)

    def _repr_html_(self) -> str:
        return self.as_table().html()
