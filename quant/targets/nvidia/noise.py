"""How far apart two right engines may be: measured by letting every number of a graph be off by the rounding of its type.

Two engines that compute one graph round at different places and add in different orders; a number that is nearly halfway between two
codes then becomes the one here and the other there. What comes of it at the outputs depends on the graph. So the graph is run with
each float that an operator gives (and each float input) multiplied by a random factor between 1 - u and 1 + u, with u one unit in the
last place of its type: 2**-10 in FP16, 2**-7 in BF16, 2**-10 in TF32. Sums of these are kept in FP32; a sum of n terms in FP32 itself is
known to n * 2**-24 (Higham, Accuracy and Stability of Numerical Algorithms, chapter 4), which is u in FP32, with n of the longest sum of any
product in the graph. The engine and the reference may each be off by that much, and in opposite directions: an output may be away from its
reference by twice the largest distance seen in any draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.progress import tracked
from quant.graph.halves import round_halves
from quant.graph.layers import LAYER_OPS
from quant.graph.model import add_initializer, attribute, constant, read_model
from quant.graph.names import Names
from quant.graph.runtime import Runtime
from quant.targets.nvidia.engine_host.comparing import Distance, distance, worst

Array = npt.NDArray[Any]
Feed = Mapping[str, Array]
Sample = tuple[Feed, dict[str, Array]]
"""Inputs, and the outputs of the graph as it is written."""

DRAWS = 4
SIDES = 2
"""The engine and the reference."""
UNITS = {ir.DataType.FLOAT16: 2.0**-10, ir.DataType.BFLOAT16: 2.0**-7}
"""Type -> one unit in the last place, of 1."""
_ROUNDING = 2.0**-24
"""Largest relative error of one FP32 addition."""
_TF32 = 2.0**-10
_TABLE = 65537
"""Number of factors; a prime, so that they do not fall in step with rows of a tensor."""
_EXACT = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "Cast", "Constant", "ConstantOfShape", "Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"}
    | {"Concat", "Slice", "Split", "Gather", "Expand", "Tile", "Pad", "Relu", "MaxPool", "Max", "Min", "Clip", "Where", "Neg", "Abs"}
)
"""Operators that give the same numbers everywhere, when they are given the same."""


def reference(path: Path, feeds: Sequence[Feed]) -> list[Sample]:
    """Inputs and outputs of the graph at `path`, computed as it is written."""
    runtime = _runtime(read_model(path), path.parent)
    return [({name: feed[name] for name in runtime.inputs}, runtime.run(feed)) for feed in feeds]


def tolerances(path: Path, samples: Sequence[Sample], *, tf32: bool) -> dict[str, Distance]:
    """Output -> how far an engine's may be from the reference.

    Args:
        path: The graph.
        samples: What `reference` gave for it.
        tf32: Whether FP32 products may be computed in TF32.
    """
    seen: dict[str, list[Distance]] = {name: [] for name in samples[0][1]}
    for draw in tracked(range(DRAWS), "measuring rounding noise", DRAWS):
        model = read_model(path)
        add_noise(model, seed=draw, tf32=tf32)
        runtime = _runtime(model, path.parent)
        for feed, expected in samples:
            for name, array in runtime.run(feed).items():
                seen[name].append(distance(array, expected[name]))
    largest = {name: worst(found) for name, found in seen.items()}
    return {name: Distance(SIDES * found.rms, SIDES * found.largest) for name, found in largest.items()}


def _runtime(model: ir.Model, folder: Path) -> Runtime:
    round_halves(model)
    return Runtime(model, folder=folder, optimize=False)


def add_noise(model: ir.Model, *, seed: int, tf32: bool = False) -> None:
    """Let every float that `model` computes or is given be off by up to the rounding of its type, in place.

    Args:
        model: The graph, with the types of its values.
        seed: Another seed makes other numbers.
        tf32: Whether FP32 is rounded to TF32.
    """
    graph = model.graph
    units = UNITS | {ir.DataType.FLOAT: _TF32 if tf32 else longest_sum(graph) * _ROUNDING}
    places: list[tuple[ir.Node | None, ir.Value]] = [(None, v) for v in graph.inputs if v.name not in graph.initializers]
    places += [(node, v) for node in graph if node.op_type not in _EXACT for v in node.outputs if constant(v) is None]
    writer = _Writer(graph, np.random.default_rng(seed), units)
    for node, value in places:
        if value.dtype in units and (value.uses() or value.is_graph_output()):
            writer.multiply(node, value)


def longest_sum(graph: ir.Graph) -> int:
    """Most terms that any product of `graph` adds up, as far as shapes are known; at least 2."""
    return max((_terms(node) for node in graph if node.op_type in LAYER_OPS), default=2)


def _terms(node: ir.Node) -> int:
    """Terms of one sum: along the columns of the left operand of a matrix product; over a filter of a convolution."""
    right = node.inputs[1]
    shape = [d if isinstance(d, int) else 1 for d in (right.shape if right is not None and right.shape is not None else ())]
    if node.op_type == "Conv":
        return max(math.prod(shape[1:]), 2)
    if node.op_type == "ConvTranspose":
        return max(math.prod(shape) // max(shape[1:2] or [1]), 2)
    across = -1 if node.op_type == "Gemm" and attribute(node, "transB", 0) else -2
    return max(shape[across] if len(shape) > 1 else math.prod(shape), 2)


class _Writer:
    """Writes factors behind values: a stretch of a table of random factors, which begins elsewhere for every value."""

    def __init__(self, graph: ir.Graph, random: np.random.Generator, units: Mapping[ir.DataType, float]) -> None:
        self._graph, self._random, self._names = graph, random, Names(graph)
        factors = random.uniform(-1.0, 1.0, _TABLE)
        self._factors = {dtype: (1.0 + unit * factors).astype(dtype.numpy()) for dtype, unit in units.items()}
        self._tables: dict[ir.DataType, ir.Value] = {}
        self._one, self._length = (add_initializer(graph, self._names.new(f"noise_{n}"), np.asarray(n, np.int64)) for n in (1, _TABLE))

    def multiply(self, after: ir.Node | None, value: ir.Value) -> None:
        """Put the factors between `value` and all that read it."""
        assert value.dtype is not None, "its unit is known"
        uses, is_output = list(value.uses()), value.is_graph_output()
        start = add_initializer(self._graph, self._names.new("noise_start"), np.asarray(self._random.integers(_TABLE), np.int64))
        nodes = [self._node("Shape", value), self._node("Size", value)]
        nodes.append(self._node("Add", nodes[1].outputs[0], start))
        nodes.append(self._node("Range", start, nodes[2].outputs[0], self._one))
        nodes.append(self._node("Mod", nodes[3].outputs[0], self._length))
        nodes.append(self._node("Gather", self._table(value.dtype), nodes[4].outputs[0], dtype=value.dtype))
        nodes.append(self._node("Reshape", nodes[5].outputs[0], nodes[0].outputs[0], dtype=value.dtype))
        nodes.append(self._node("Mul", value, nodes[6].outputs[0], dtype=value.dtype))
        if after is None:
            self._graph.insert_before(self._graph[0], nodes)
        else:
            self._graph.insert_after(after, nodes)
        noisy = nodes[-1].outputs[0]
        noisy.shape = value.shape
        for reader, position in uses:
            reader.replace_input_with(position, noisy)
        if is_output:
            index = next(i for i, v in enumerate(self._graph.outputs) if v is value)
            value.name, noisy.name = noisy.name, value.name
            self._graph.outputs[index] = noisy

    def _node(self, op: str, *inputs: ir.Value, dtype: ir.DataType = ir.DataType.INT64) -> ir.Node:
        made = ir.node(op, inputs, name=self._names.new(f"noise_{op}"))
        made.outputs[0].name, made.outputs[0].dtype = self._names.new(f"noise_of_{op}"), dtype
        return made

    def _table(self, dtype: ir.DataType) -> ir.Value:
        if dtype not in self._tables:
            self._tables[dtype] = add_initializer(self._graph, self._names.new("noise_factors"), self._factors[dtype])
        return self._tables[dtype]
