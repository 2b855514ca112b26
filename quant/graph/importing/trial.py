"""Running a graph on examples, to hold every step of an import to the same outputs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.data.samples import Feed
from quant.errors import ModelError
from quant.graph.model import write_model
from quant.graph.runtime import Runtime

Array = npt.NDArray[Any]
Outputs = tuple[Mapping[str, Array], ...]
"""One mapping output name -> array for every example."""
TOLERANCE = 1e-4
"""Largest change of an output, relative to its largest magnitude, that counts as rounding of floats."""


def batches(model: ir.Model, examples: Sequence[Feed], batch_axes: Mapping[str, int | None], *, state: Sequence[str] = ()) -> tuple[dict[str, Array], ...]:
    """One batch for every example: the batch axis is added, repeated as often as a fixed batch size of the model asks.

    Args:
        model: The model to feed.
        examples: Feeds without the batch axis.
        batch_axes: Input -> its batch axis, None for an input without one; 0 for those not named.
        state: Inputs that start as zeros when no example has them.

    Raises:
        ModelError: An input of the model is in no example.
    """
    inputs = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    return tuple({str(v.name): _batch(v, feed, batch_axes.get(str(v.name), 0), state=state) for v in inputs} for feed in examples)


def _batch(value: ir.Value, feed: Feed, axis: int | None, *, state: Sequence[str]) -> Array:
    name = str(value.name)
    if name not in feed:
        if name not in state:
            raise ModelError(f"the data has nothing for the model's input {name!r}", hint=f"the data gives: {', '.join(sorted(feed))}; see data.inputs")
        shape = [d if isinstance(d, int) else 1 for d in value.shape or ()]
        return np.zeros(shape, dtype=(value.dtype or ir.DataType.FLOAT).numpy())
    array = np.asarray(feed[name])
    if axis is None:
        return array
    array = np.expand_dims(array, axis)
    size = value.shape[axis] if value.shape is not None and axis < len(value.shape) else 1
    return np.repeat(array, size, axis=axis) if isinstance(size, int) and size > 1 else array


@dataclass(frozen=True)
class Trial:
    """Runs graphs on the same batches, with the optimizations of ONNX Runtime off and on one thread.

    Args:
        feeds: The batches.
        scratch: Folder in which graphs are written for a moment.
    """

    feeds: tuple[Mapping[str, Array], ...]
    scratch: Path

    def outputs(self, model: ir.Model) -> Outputs:
        """The outputs of `model`, which is loaded even when there is nothing to run it on.

        Raises:
            ModelError: ONNX Runtime cannot load or run it.
        """
        with tempfile.TemporaryDirectory(prefix=".trial.", dir=self.scratch) as folder:
            return self.outputs_of_file(write_model(model, Path(folder)))

    def outputs_of_file(self, path: Path) -> Outputs:
        """The outputs of the model in `path`.

        Raises:
            ModelError: ONNX Runtime cannot load or run it.
        """
        runtime = Runtime(path, optimize=False)
        return tuple(runtime.run(feed) for feed in self.feeds)


def change(before: Outputs, after: Outputs) -> tuple[float, float]:
    """The largest change of any output: absolute, and relative to the largest magnitude of that output.

    NaN against NaN, and an infinity against the same, count as no change; against anything else the change is infinite.
    Of integers and booleans (decisions, which rounding may tip) the relative change is the share of elements that differ, divided by 100.

    Example:
        >>> change(({"y": np.array([1.0, -4.0])},), ({"y": np.array([1.0, -4.5])},))
        (0.5, 0.125)
    """
    absolute, relative = 0.0, 0.0
    for name in before[0] if before else ():
        pairs = [(np.asarray(x[name]), np.asarray(y[name])) for x, y in zip(before, after, strict=True)]
        if any(x.shape != y.shape or x.dtype != y.dtype for x, y in pairs):
            return float("inf"), float("inf")
        if pairs[0][0].dtype.kind != "f":
            share = max((float(np.mean(x != y)) for x, y in pairs if x.size), default=0.0)
            relative = max(relative, share / 100)
            continue
        largest = max(_difference(x, y) for x, y in pairs)
        scale = max(_magnitude(x) for x, _ in pairs)
        absolute = max(absolute, largest)
        relative = max(relative, largest / scale if scale else largest)
    return absolute, relative


def _difference(x: Array, y: Array) -> float:
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    same = (wide_x == wide_y) | (np.isnan(wide_x) & np.isnan(wide_y))
    finite = np.isfinite(wide_x) & np.isfinite(wide_y)
    if bool(np.any(~same & ~finite)):
        return float("inf")
    return float(np.max(np.abs(wide_x[finite] - wide_y[finite]), initial=0.0))


def _magnitude(x: Array) -> float:
    finite = x[np.isfinite(x)].astype(np.float64)
    return float(np.max(np.abs(finite), initial=0.0))
