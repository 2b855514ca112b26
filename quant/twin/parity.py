"""Twin against ONNX Runtime, on data: two ways to compute one graph differ by rounding alone.

Outputs are compared first. Rounding differs between two float32 programs by about the unit roundoff u = 2**-24 times the root of
the number of roundings: sums of K terms along a path of D nodes give u * sqrt(K * D) of the largest value, and eight times
that is allowed for the largest of many elements. A quantizer near a tie, or a graph that amplifies, goes beyond it without
being wrong; so beyond it every node is held to ONNX Runtime by itself, fed with ONNX Runtime's own values, and only a node
that parts there makes the twin wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch import fx

from quant.errors import ModelError
from quant.graph.layers import LAYER_OPS
from quant.graph.model import constant
from quant.graph.runtime import Runtime
from quant.twin.conversion import Converted
from quant.twin.operators import from_numpy

_ROUNDOFF = 2.0**-24
_HALF = 2.0**-11
_SLACK = 8.0
"""The largest of up to a billion normally distributed errors lies within 6.1 deviations; 8 leaves room for two programs."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Parity:
    """How close a twin is to ONNX Runtime.

    Args:
        error: Largest difference of any output, relative to the largest magnitude of that output.
        tolerance: What is allowed before nodes are looked at one by one.
        node_by_node: Whether that was needed, and every node agreed by itself.
    """

    error: float
    tolerance: float
    node_by_node: bool


def compare(converted: Converted, model: ir.Model, feeds: Sequence[Mapping[str, Array]]) -> Parity:
    """Hold the twin to ONNX Runtime on `feeds`.

    Raises:
        ModelError: A node gives something else than ONNX Runtime does for the same inputs; the first is named.
    """
    runtime = Runtime(_loaded(model), optimize=False)
    tolerance = _tolerance(model)
    worst, wrong = 0.0, None
    for feed in feeds:
        expected = runtime.run(feed)
        with torch.no_grad():
            found = converted.module(*(from_numpy(np.asarray(feed[n])) for n in converted.inputs))
        for name, tensor in zip(converted.outputs, found, strict=True):
            error = _error(tensor, expected[name])
            worst = max(worst, error)
            wrong = feed if wrong is None and not error <= tolerance else wrong
    if wrong is not None:
        _node_by_node(converted, model, wrong)
    return Parity(worst, tolerance, node_by_node=wrong is not None)


def _loaded(model: ir.Model) -> ir.Model:
    """A copy whose weights travel inside it, so that it can be given other outputs and runs from memory."""
    return ir.from_proto(ir.to_proto(ir.external_data.load_to_model(model.clone())))


def _tolerance(model: ir.Model) -> float:
    """`_SLACK` * u * sqrt(K * D), of the longest sum K and the number of nodes D."""
    longest = 1
    for node in model.graph:
        for value in node.inputs:
            array = constant(value) if node.op_type in LAYER_OPS else None
            if array is not None and array.ndim > 1:
                longest = max(longest, array.size // array.shape[0] if node.op_type == "Conv" else array.shape[-2])
    halves = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
    half = any(v.dtype in halves for n in model.graph for v in n.outputs)
    return _SLACK * (_HALF if half else _ROUNDOFF) * math.sqrt(longest * len(model.graph))


def _error(found: torch.Tensor, expected: Array) -> float:
    """Largest difference relative to the largest magnitude; infinite where NaN, infinities, shape or type part."""
    other = from_numpy(expected)
    if found.shape != other.shape or found.dtype != other.dtype:
        return math.inf
    a, b = found.to(torch.float64), other.to(torch.float64)
    odd = ~torch.isfinite(b)
    if not torch.equal(torch.nan_to_num(a[odd], nan=1e300), torch.nan_to_num(b[odd], nan=1e300)) or not bool(torch.isfinite(a[~odd]).all()):
        return math.inf
    a, b = a[~odd], b[~odd]
    top = float(b.abs().max()) if b.numel() else 0.0
    difference = float((a - b).abs().max()) if b.numel() else 0.0
    return difference / top if top else difference


def _node_by_node(converted: Converted, model: ir.Model, feed: Mapping[str, Array]) -> None:
    """Compute every node from ONNX Runtime's values; the first whose result parts is told."""
    names = [n for n, made in converted.values.items() if made.op == "call_function"]
    truth = _everything(model, feed, names)
    run = _OneByOne(converted.module, {made: n for n, made in converted.values.items()}, {**feed, **truth})
    with torch.no_grad():
        run.run(*(from_numpy(np.asarray(feed[n])) for n in converted.inputs))
    ends = {str(v.name): n for n in model.graph for v in n.outputs}
    for name in names:
        error, allowed = run.errors.get(name, (0.0, 0.0))
        if not error <= allowed:
            node = ends[name]
            raise ModelError(
                f"the twin parts from ONNX Runtime here: {name!r} differs by {error:.2g} of its largest value, {allowed:.2g} is rounding",
                where=f"node {node.name or name!r} ({node.op_type})",
                hint="this is a fault of the twin: leave out what needs gradients, and report the node",
            )


def _everything(model: ir.Model, feed: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    probed = _loaded(model)
    made = {str(v.name): v for n in probed.graph for v in n.outputs}
    for name in names:
        if made[name] not in probed.graph.outputs:
            probed.graph.outputs.append(made[name])
    return Runtime(probed, optimize=False).run(feed, names)


class _OneByOne(fx.Interpreter):
    """Runs the twin with ONNX Runtime's value in the place of each that it makes, and keeps how far the two are apart."""

    def __init__(self, module: fx.GraphModule, names: Mapping[fx.Node, str], truth: Mapping[str, Array]) -> None:
        super().__init__(module)
        self._names, self._truth = names, truth
        self.errors: dict[str, tuple[float, float]] = {}

    def run_node(self, n: fx.Node) -> Any:
        out = super().run_node(n)
        name = self._names.get(n)
        if n.op != "call_function" or name is None or name not in self._truth:
            return out
        expected = from_numpy(self._truth[name])
        carried = expected.to(out.dtype) if not expected.is_floating_point() or expected.element_size() == 1 else expected
        self.errors[name] = _error(out, carried.numpy() if carried.dtype != torch.bfloat16 else self._truth[name]), self._allowed(n, out)
        return carried

    def _allowed(self, node: fx.Node, out: torch.Tensor) -> float:
        """What rounding may do to one node: u * sqrt(terms), grown by how much its terms cancel."""
        inputs = [self.env[a] for a in node.all_input_nodes if a in self.env]
        floats = [t for t in inputs if isinstance(t, torch.Tensor) and t.is_floating_point()]
        terms = max((t.numel() // max(t.shape[0], 1) if t.dim() else 1 for t in floats), default=1)
        roundoff = _HALF if out.dtype in {torch.float16, torch.bfloat16} else _ROUNDOFF
        top = float(out.abs().max()) if out.is_floating_point() and out.numel() else 1.0
        size = max((float(t.abs().max()) for t in floats if t.numel()), default=1.0)
        return _SLACK * roundoff * math.sqrt(terms) * max(1.0, size / top if top else 1.0)
