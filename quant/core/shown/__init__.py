"""How documents look in a notebook: each says its table and its chart, as data, and what draws them is here once."""

from quant.core.shown.chart import Chart, Series
from quant.core.shown.faces import Shown
from quant.core.shown.table import Cell, Table

__all__ = ["Cell", "Chart", "Series", "Shown", "Table"]
