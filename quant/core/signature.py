"""What goes into a model and what comes out: names, types and shapes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a graph.

    Args:
        name: As in the user's file.
        dtype: NumPy name of the element type (`float32`, `int64`, ...).
        shape: One entry an axis: a fixed length, or a symbol's name (`?` when the axis has no name). None: unknown rank.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        shape = "unknown shape" if self.shape is None else "[" + ", ".join(map(str, self.shape)) + "]"
        return f"{self.name}: {self.dtype} {shape}"


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a graph, in the graph's order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
