"""What layers cost: what one run asks of them, and the price of each format, with that of changing from one to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from quant.core.documents import Document
from quant.errors import PlanError


def crossing(before: str, after: str) -> str:
    """The key of what it costs to read in format `after` what was made in format `before`.

    Example:
        >>> crossing("fp32", "int8")
        'fp32>int8'
    """
    return f"{before}>{after}"


class LayerWork(Document):
    """What one run asks of a layer, whatever its format.

    Args:
        layer: Its name.
        op: ONNX operator type.
        products: Multiplications, each with its addition.
        weights: Elements of its weight; 0 for a product of two activations.
        read: Elements of activations that it reads.
        written: Elements that it makes.
    """

    layer: str
    op: str
    products: int
    weights: int
    read: int
    written: int


class Crossing(Document):
    """A tensor that layers make or read: where they differ in format, it is converted.

    Args:
        tensor: Its name.
        maker: The layer that makes it, possibly followed by what runs on codes as well as on floats; None: what makes it is no layer.
        readers: The layers that read it.
        open: Whether something that is no layer reads it, too.
        elements: Its size in one run.
        also: Other names that it goes by, moved, bounded, or added to.
    """

    tensor: str
    maker: str | None
    readers: tuple[str, ...]
    open: bool
    elements: int
    also: tuple[str, ...] = ()


class ModelWork(Document):
    """What one run of a model asks of its layers.

    Args:
        model: Digest of the FP32 model.
        samples: Samples in the run.
        layers: One for every layer, in graph order.
        crossings: The tensors at which formats may change.
        other_weights: Elements of weights that belong to no layer.
    """

    model: str
    samples: int = Field(ge=1)
    layers: tuple[LayerWork, ...]
    crossings: tuple[Crossing, ...]
    other_weights: int = 0


class LayerCost(Document):
    """What one layer costs in each format: format -> cost, in the table's unit."""

    layer: str
    costs: Mapping[str, float]


class Boundary(Document):
    """What it costs that a tensor is made in one format and read in another.

    The tensor is converted once for each format that it is read in, however many readers have that one.

    Args:
        tensor: Name of the tensor.
        maker: The layer that makes it; None: what makes it is no layer, and runs in the table's `body`.
        readers: The layers that read it.
        open: Whether something that is no layer reads it, too, in the table's `body`.
        prices: `crossing(format of the maker, format of a reader)` -> cost; free where it is not named.
    """

    tensor: str
    maker: str | None
    readers: tuple[str, ...]
    open: bool = False
    prices: Mapping[str, float]

    def price(self, choices: Mapping[str, str], body: str) -> float:
        """What the tensor costs when layers run in `choices`, and all else in `body`."""
        before = body if self.maker is None else choices[self.maker]
        after = {choices[reader] for reader in self.readers} | ({body} if self.open else set())
        return sum(self.prices.get(crossing(before, one), 0.0) for one in sorted(after))


class CostTable(Document):
    """What every layer costs in every format on one target.

    Args:
        kind: The cost model that made the table.
        unit: `ms`, `bytes`, `bits`, …
        estimated: Whether it was calculated and not measured.
        source: Where the numbers come from: an engine and its machine, or a data sheet.
        target: The serving engine; empty when the cost does not depend on it.
        model: Digest of the FP32 model.
        samples: Samples in the run that is priced.
        body: Format of what is no layer.
        layers: One for every layer that has a price, in graph order.
        boundaries: What changes of format cost.
        rest: What everything else costs, whatever the layers run in.
    """

    kind: str
    unit: str
    estimated: bool
    source: str
    target: str = ""
    model: str = ""
    samples: int = Field(1, ge=1)
    body: str = "fp32"
    layers: tuple[LayerCost, ...]
    boundaries: tuple[Boundary, ...] = ()
    rest: float = 0.0

    @model_validator(mode="after")
    def _prices_are_prices(self) -> Self:
        for name, price in [(f"{b.tensor} ({key})", p) for b in self.boundaries for key, p in b.prices.items()] + [("the rest", self.rest)]:
            if not 0 <= price < float("inf"):
                raise ValueError(f"the price of {name} is {price}")
        if bad := [row.layer for row in self.layers if not all(0 <= cost < float("inf") for cost in row.costs.values())]:
            raise ValueError(f"the cost of layer {bad[0]!r} is negative or not finite")
        return self

    def model_post_init(self, context: Any, /) -> None:
        """Index the layers by name."""
        del context
        object.__setattr__(self, "_by_name", {row.layer: row.costs for row in self.layers})

    def cost(self, layer: str, number_format: str) -> float:
        """What `layer` costs in `number_format`.

        Raises:
            PlanError: The table has no such price.
        """
        by_name: Mapping[str, Mapping[str, float]] = self._by_name  # type: ignore[attr-defined]  # set when the table is made
        costs = by_name.get(layer)
        if costs is None or number_format not in costs:
            what = f"the table of {self.kind} costs has no price of layer {layer!r}" + ("" if costs is None else f" in {number_format}")
            raise PlanError(what, hint="" if costs is None else f"it has {', '.join(costs)}")
        return costs[number_format]

    def total(self, choices: Mapping[str, str]) -> float:
        """What the whole model costs when its layers run in `choices` (one format for every layer of the table).

        Example:
            >>> rows = (LayerCost(layer="a", costs={"fp32": 4.0, "int8": 1.0}), LayerCost(layer="b", costs={"fp32": 2.0, "int8": 1.5}))
            >>> between = Boundary(tensor="t", maker="a", readers=("b",), prices={"int8>fp32": 0.25, "fp32>int8": 0.5})
            >>> table = CostTable(kind="measured", unit="ms", estimated=False, source="by hand", layers=rows, boundaries=(between,), rest=10.0)
            >>> table.total({"a": "int8", "b": "fp32"}), table.total({"a": "int8", "b": "int8"})
            (13.25, 12.5)
        """
        layers = sum(self.cost(row.layer, choices[row.layer]) for row in self.layers)
        return layers + sum(boundary.price(choices, self.body) for boundary in self.boundaries) + self.rest


class KernelTime(Document):
    """What one kernel took, and what it was for.

    Args:
        kernel: Its name in the engine.
        op: The engine's operator.
        ms: Milliseconds in one run, median.
        layers: The layers that it computes, or parts of them.
        near: Of what computes no layer: the nearest layer before it; None where there is none.
        converts: The tensor that it brings from one format into another, when it does nothing else.
        codes: Whether what it makes are integer codes.
        elements: Size of what it makes.
    """

    kernel: str
    op: str
    ms: float
    layers: tuple[str, ...] = ()
    near: str | None = None
    converts: str | None = None
    codes: bool = False
    elements: int = 0


class EngineProfile(Document):
    """What an engine's own profiler says of an artifact.

    Args:
        target: The serving engine, with its version.
        scheme: The artifact's scheme.
        machine: What it ran on, and with how many threads.
        runs: Runs that the medians of kernels are of.
        total_ms: Milliseconds of the quickest whole run, without the profiler.
        kernels: Every kernel that ran, in the engine's order.
    """

    target: str
    scheme: str
    machine: str
    runs: int
    total_ms: float
    kernels: tuple[KernelTime, ...]

    @property
    def kernel_ms(self) -> float:
        """Milliseconds of all kernels together."""
        return sum(kernel.ms for kernel in self.kernels)


class ConversionTimes(Document):
    """What it takes to bring a tensor into a format, and back into the body's, measured at a few sizes.

    Args:
        enter: (elements, milliseconds), by rising size.
        leave: The same for the way back.
    """

    enter: tuple[tuple[int, float], ...]
    leave: tuple[tuple[int, float], ...]


def time_of(elements: int, measured: tuple[tuple[int, float], ...]) -> float:
    """Milliseconds for a tensor of `elements`, between the sizes that were measured; beyond the largest, in proportion.

    Example:
        >>> time_of(200, ((100, 1.0), (300, 2.0))), time_of(600, ((100, 1.0), (300, 2.0)))
        (1.5, 4.0)
    """
    before = measured[0]
    for size, ms in measured:
        if elements <= size:
            share = 1.0 if size == before[0] else (elements - before[0]) / (size - before[0])
            return before[1] + share * (ms - before[1])
        before = size, ms
    return before[1] * elements / before[0]
