"""A graph with quantizers around float weights, as a module that can be trained, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch

from quant.core.formats import Range
from quant.graph.layers import TABLE_OP, find_layers
from quant.graph.model import FLOATS, constant
from quant.graph.qdq import Placed
from quant.graph.weights import Quantizer, held, hold
from quant.twin.make import make_twin
from quant.twin.training.quantizers import FakeBias, FakeQuantizer

_TAKES_VECTORS = frozenset(
    {"Add", "Sub", "Mul", "Div", "PRelu", "LayerNormalization", "GroupNormalization", "InstanceNormalization", "RMSNormalization", "SkipLayerNormalization"}
)


class Trainable:
    """The twin of a graph with placed quantizers.

    Args:
        model: The graph, weights in float (`place_qdq`); not changed before `write_back`.
        placed: Its quantizers.
        learn_scales: Whether scales are learned.
        check: Feeds on which the twin is held to ONNX Runtime.

    Attributes:
        twin: The twin, its pairs of QuantizeLinear and DequantizeLinear replaced by fake quantizers.
        weights: Initializer -> parameter, for all that is trained.
        quantizers: Name of a scale's initializer -> its quantizer; those that share a scale share the quantizer.

    Raises:
        ModelError: The graph has an operator that cannot be trained.
    """

    def __init__(self, model: ir.Model, placed: Placed, *, learn_scales: bool, check: Sequence[Mapping[str, npt.NDArray[Any]]] | None) -> None:
        names = trainable_weights(model)
        self.twin = make_twin(model, check=check)
        self._placed = placed
        self.quantizers: dict[str, FakeQuantizer] = {}
        pairs = [*placed.activations.values(), *(w.quantizer for w in placed.weights)]
        for pair in pairs:
            self.quantizers[pair.scale] = self.quantizers.get(pair.shares) or self._fake(model, pair, learn=learn_scales)
        self.twin.substitute((pair.made, self.quantizers[pair.scale], pair.source) for pair in pairs)
        for weight in placed.weights:
            if weight.bias is not None:
                source = self.quantizers[placed.activations[weight.source].scale]
                self.twin.insert(weight.bias, FakeBias(self.quantizers[weight.quantizer.scale], source))
        known = self.twin.parameters
        chosen = [name for name in names if name in known]
        self.weights: dict[str, torch.nn.Parameter] = dict(zip(chosen, self.twin.train(chosen), strict=True))

    @staticmethod
    def _fake(model: ir.Model, pair: Quantizer, *, learn: bool) -> FakeQuantizer:
        scale = torch.from_numpy(np.array(held(model.graph, pair.scale), np.float32))
        zero = torch.from_numpy(np.array(held(model.graph, pair.zero_point).astype(np.float32)))
        return FakeQuantizer(pair.grid, scale, zero, axis=pair.axis, learn=learn)

    @property
    def scales(self) -> list[torch.nn.Parameter]:
        """The parameters of the quantizers whose scales are learned, each once."""
        found = {id(q): q.growth for q in self.quantizers.values() if q.growth.requires_grad}
        return list(found.values())

    def write_back(self, model: ir.Model) -> None:
        """Write trained weights and learned scales into the graph that this was made of."""
        self.twin.write_back(model)
        for name, quantizer in self.quantizers.items():
            hold(model.graph, name, quantizer.scale.detach().numpy())

    def ranges(self) -> dict[str, Range]:
        """Tensor -> the range that its quantizer writes now."""
        found = {}
        for tensor, pair in self._placed.activations.items():
            quantizer = self.quantizers[pair.scale]
            scale, zero, grid = float(quantizer.scale.detach()), float(quantizer.zero_point), pair.grid
            low = -grid.high if grid.symmetric and grid.low < 0 else grid.low  # the range that its scale is chosen for
            found[tensor] = Range((low - zero) * scale, (grid.high - zero) * scale)
        return found


def trainable_weights(model: ir.Model) -> tuple[str, ...]:
    """Initializers of `model` that training may change, in the graph's order.

    These are the weights and biases of its quantized layers, and vectors (one number to a channel) that are added to, or multiplied
    with, what a layer has made: biases, and factors of normalizations. Layers that stay in float stay as they are, and so do
    tables of embeddings, masks, positions and other constants that are no weights.
    """
    layers = {id(layer.node): _is_quantized(layer.node) for layer in find_layers(model) if layer.op != TABLE_OP}
    behind: set[str] = set()
    found: dict[str, None] = {}
    for node in model.graph:
        is_layer = id(node) in layers
        after = any(v is not None and v.name in behind for v in node.inputs)
        if is_layer or after:
            behind.update(str(v.name) for v in node.outputs)
        for value in node.inputs:
            source = _weight_of(value)
            if source is not None and (layers.get(id(node), False) or (after and node.op_type in _TAKES_VECTORS and _is_vector(source))):
                found[str(source.name)] = None
    return tuple(found)


def _is_quantized(node: ir.Node) -> bool:
    """Whether a layer reads a weight through a quantizer."""
    return any(v is not None and not v.is_initializer() and _weight_of(v) is not None for v in node.inputs)


def _weight_of(value: ir.Value | None) -> ir.Value | None:
    """The float initializer that `value` is, or is read from through a quantizer."""
    for _ in range(2):
        maker = value.producer() if value is not None else None
        if maker is None or maker.op_type not in {"DequantizeLinear", "QuantizeLinear"}:
            break
        value = maker.inputs[0]
    return value if value is not None and value.is_initializer() and value.dtype in FLOATS and not value.is_graph_input() else None


def _is_vector(value: ir.Value) -> bool:
    array = constant(value)
    return array is not None and array.size > 1 and max(array.shape, default=0) == array.size
