"""What schemes have in common whose ranges are all fixed before the model runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.formats import Grid, Range
from quant.graph.bias import correct_biases, correctable, give_biases
from quant.graph.layers import Layer
from quant.graph.points import insertion_points, known_ranges
from quant.graph.qdq import write_qdq
from quant.graph.weights import bias_obstacle

_MATRIX = 2


class StaticNeeds(NamedTuple):
    """What must be known to write such a plan.

    Args:
        ranges: Tensor -> grid that its range is wanted for.
        known: Tensor -> range that need not be looked for.
        means: Tensors whose mean in each channel is wanted.
    """

    ranges: Mapping[str, Grid]
    known: Mapping[str, Range]
    means: frozenset[str]


def static_obstacle(layer: Layer, dialect: Dialect, *, products: bool, kernel: str) -> str | None:
    """Why `layer` cannot be quantized in `dialect`; None when it can.

    Args:
        layer: The layer.
        dialect: The form that the target wants.
        products: Whether products of two activations are wanted.
        kernel: What kind of kernel the target must have (`integer`, say).
    """
    if layer.op not in dialect.integer:
        return f"the target has no {kernel} kernel for {layer.op}"
    if layer.weight is None and layer.op != "MatMul":
        return f"the weight of this {layer.op} is computed"
    if layer.weight is None and not products:
        return "products of two activations are left out (`products: false`)"
    if layer.weight == 0:
        return "the weight is the left operand, whose channels no engine scales"
    shape = layer.weight_shape
    if shape is not None and len(shape) < _MATRIX:
        return "the weight is a vector"
    return bias_obstacle(layer, dialect)


def static_needs(model: ir.Model, layers: Collection[Layer], dialect: Dialect, *, correct_bias: bool) -> StaticNeeds:
    """Ranges of all tensors that get Q/DQ, and the means of what weights multiply, where biases are to be corrected."""
    points = insertion_points(model, layers, dialect)
    known = known_ranges(model, points, dialect)
    before = correctable(layers) if correct_bias else {}
    return StaticNeeds({name: grid for name, grid in points.items() if name not in known}, known, frozenset(was.source for was in before.values()))


def write_static(
    model: ir.Model,
    layers: Collection[Layer],
    dialect: Dialect,
    *,
    ranges: Mapping[str, Range],
    means: Mapping[str, npt.NDArray[np.float64]],
    per_channel: bool,
    correct_bias: bool,
) -> None:
    """Write Q/DQ around `layers` into `model`, in place, and correct the biases where that is wanted."""
    before = correctable(layers) if correct_bias else {}
    if correct_bias:
        give_biases(model.graph, layers)
    write_qdq(model, layers, ranges, dialect, per_channel=per_channel)
    correct_biases(model, before, means)
