"""levels: which products with weights of 4 bits ONNX Runtime may multiply in INT8, by what that does to the outputs.

`MatMulNBits` can round the activations that it reads, each row in blocks of a scale of their own. That is fast, and mostly costs far
less than the 4 bits of the weights do. But one large value leaves the others of its block no digits: where AWQ multiplies a channel by
20,000 because no value was seen in it, and the rounded layers before it then give one, outputs were measured to be off by 45 %, in a
model that 4 bits alone moved by 2 %. So both are measured, and layers are multiplied in FP32 until their INT8 costs no more than their
4 bits.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from quant.core.parallel import ordered_map
from quant.core.progress import progress
from quant.graph.blocks.microsoft import multiply_in_float, rounding_products
from quant.graph.model import read_model, write_model
from quant.graph.plain import plain
from quant.graph.runtime import Runtime
from quant.stages.agree import Feed, outputs_of
from quant.stages.running import Array, Outputs, Run

MOST_SAMPLES = 32
"""Samples that the outputs are compared on."""


def settle_levels(model: ir.Model, feeds: Sequence[Feed], exact: Run) -> dict[str, str]:
    """Let those products of `model` be multiplied in FP32 that INT8 would harm, in place.

    Args:
        model: The quantized graph, with products that may be multiplied in INT8.
        feeds: Inputs.
        exact: What runs the FP32 model.

    Returns:
        Name of each layer that is multiplied in FP32 -> what is to be said of it.
    """
    if not feeds or not rounding_products(model):
        return {}
    with tempfile.TemporaryDirectory() as scratch:
        trial = _Trial(write_model(model, Path(scratch) / "graph"), feeds, exact)
        chosen = trial.in_float()
    multiply_in_float([node for node in rounding_products(model) if node.name in chosen])
    share = f"{trial.shares[0]:.2g} times"
    return dict.fromkeys(chosen, f"multiplied in FP32: in INT8, activations cost {share if math.isfinite(trial.shares[0]) else 'more than'} what 4 bits cost")


class _Trial:
    """One graph at different levels.

    Args:
        path: The graph, in INT8 wherever it may be.
        feeds: Inputs.
        exact: What runs the FP32 model.
    """

    def __init__(self, path: Path, feeds: Sequence[Feed], exact: Run) -> None:
        self._path = path
        self._exact = outputs_of(exact, feeds)
        self._feeds = feeds[: len(self._exact)]
        self._plain = outputs_of(plain(path).run, self._feeds)
        self.shares: list[float] = []
        """What INT8 costs, as a share of what 4 bits cost, before each step."""

    def in_float(self) -> list[str]:
        """Names of the layers that are to be multiplied in FP32: those that are off most by themselves, twice as many each time."""
        chosen: list[str] = []
        order: list[str] = []
        while self._share(chosen) > 1:
            order = order or self._most_off_first()
            if len(chosen) == len(order):
                break
            chosen = order[: 2 * len(chosen) or 1]
        return chosen

    def _share(self, chosen: Sequence[str]) -> float:
        """Power of what INT8 does to the output that it harms most, as a share of what 4 bits do to it."""
        model = read_model(self._path)
        multiply_in_float([node for node in rounding_products(model) if node.name in chosen])
        found = self._outputs(model)
        shares = [_share_of([o[name] for o in self._exact], [o[name] for o in self._plain], [o[name] for o in found]) for name in found[0]]
        self.shares.append(max(shares))
        return self.shares[-1]

    def _outputs(self, model: ir.Model) -> list[Outputs]:
        with tempfile.TemporaryDirectory() as scratch:
            runtime = Runtime(write_model(model, Path(scratch)), optimize=False)
        return list(ordered_map(runtime.run, self._feeds))

    def _most_off_first(self) -> list[str]:
        """The layers, by what INT8 alone does to what each gives for the plain values of what it reads, as a share of its power."""
        off: dict[str, float] = {}
        model = read_model(self._path)
        products = rounding_products(model)
        multiply_in_float(products)
        watched = {str(v.name): v for node in products for v in (node.inputs[0], node.outputs[0]) if v is not None and not v.is_graph_input()}
        model.graph.outputs.extend(value for value in watched.values() if not value.is_graph_output())
        found = [{**feed, **given} for feed, given in zip(self._feeds, self._outputs(model), strict=True)]
        with progress("comparing levels", len(products)) as advance:
            for node in rounding_products(read_model(self._path)):
                off[str(node.name)] = _off(node, found)
                advance(1)
        return sorted(off, key=lambda name: -off[name])


def _off(node: ir.Node, found: Sequence[Mapping[str, Array]]) -> float:
    """Power of what INT8 does to what the product `node` gives, as a share of its power."""
    source, result = (str(value.name) for value in (node.inputs[0], node.outputs[0]) if value is not None)
    inputs = [ir.Value(name=source, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([None] * found[0][source].ndim))]
    weights = [ir.Value(name=v.name, type=v.type, shape=v.shape, const_value=v.const_value) for v in node.inputs[1:] if v is not None]
    alone = ir.node(node.op_type, [*inputs, *weights], attributes=dict(node.attributes), domain=node.domain)
    alone.outputs[0].name, alone.outputs[0].dtype = result, ir.DataType.FLOAT
    graph = ir.Graph(inputs, alone.outputs, nodes=[alone], initializers=weights, opset_imports={"": 21, node.domain: 1})
    with tempfile.TemporaryDirectory() as scratch:
        runtime = Runtime(write_model(ir.Model(graph, ir_version=10), Path(scratch)), optimize=False)
    rounded = [runtime.run({source: given[source]})[result] for given in found]
    power = sum(float(np.sum(given[result].astype(np.float64) ** 2)) for given in found)
    return sum(_power(got, given[result]) for got, given in zip(rounded, found, strict=True)) / max(power, np.finfo(np.float64).tiny)


def _share_of(exact: Sequence[Array], plain_ones: Sequence[Array], found: Sequence[Array]) -> float:
    """‖found - plain‖² / ‖plain - exact‖², over all values; 0 where there is nothing to be compared."""
    if exact[0].dtype.kind != "f":
        return 0.0
    added = sum(map(_power, found, plain_ones))
    cost = sum(map(_power, plain_ones, exact))
    return 0.0 if added == 0 else added / cost if cost > 0 else math.inf


def _power(left: Array, right: Array) -> float:
    return float(np.sum((left.astype(np.float64) - right.astype(np.float64)) ** 2))
