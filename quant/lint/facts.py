"""What the rules look at: a graph's quantizers, layers, constants, types and shapes, found once for all of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt
import onnx_ir as ir
import onnx_ir.passes.common

from quant.graph.model import all_graphs, opset
from quant.lint.layers import Layer, find_layers
from quant.lint.quantizers import Quantizer, find_quantizers
from quant.lint.typing_of_values import made_types
from quant.lint.values import shape_of, stored

_INFERENCE = logging.getLogger("onnx_ir.passes.common.shape_inference")
STANDARD = frozenset({"", "ai.onnx"})


@dataclass(frozen=True)
class Setting:
    """What is known of the build.

    Args:
        capability: Compute capability of the GPU, times ten (89 for 8.9); None when it is not known.
        bytes_on_disk: Size of the model with its external data.
    """

    capability: int | None = None
    bytes_on_disk: int = 0


class Facts:
    """A graph as the rules see it. Nothing here changes the model, except that shapes and types are inferred into it.

    Args:
        model: The model; functions of its own must have been put in their places.
        setting: What is known of the build.
    """

    def __init__(self, model: ir.Model, setting: Setting | None = None) -> None:
        self.model = model
        self.setting = setting or Setting()
        self.opset = opset(model)
        with _quiet_inference():
            ir.passes.common.ShapeInferencePass(check_type=False, strict_mode=False)(model)
        self.nodes: tuple[ir.Node, ...] = tuple(node for graph in all_graphs(model.graph) for node in graph)

    @cached_property
    def types(self) -> dict[ir.Value, ir.DataType]:
        """The type that every value is made in; what a graph output is declared as does not count."""
        return made_types(self.model, self.nodes, self.opset)

    @cached_property
    def constants(self) -> frozenset[ir.Value]:
        """Values that do not depend on any input of the graph, whether stored or computed from what is stored."""
        found: set[ir.Value] = {v for graph in all_graphs(self.model.graph) for v in graph.initializers.values() if v.const_value is not None}
        for node in self.nodes:
            inputs = [v for v in node.inputs if v is not None]
            fresh = node.op_type == "Constant" if not inputs else all(v in found for v in inputs)
            if fresh and not any(a.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS} for a in node.attributes.values()):
                found.update(node.outputs)
        return frozenset(found)

    @cached_property
    def quantizers(self) -> dict[ir.Node, Quantizer]:
        """Every QuantizeLinear and DequantizeLinear, in the graph's order."""
        return find_quantizers(self)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Every Conv, ConvTranspose, Gemm and MatMul, with what its inputs come from."""
        return find_layers(self)

    def standard(self, *ops: str) -> Iterator[ir.Node]:
        """Nodes of the standard operator set, of the given operators, that read and make something."""
        return (node for node in self.nodes if node.op_type in ops and node.domain in STANDARD and node.inputs and node.outputs)

    def dequantizer(self, value: ir.Value | None) -> Quantizer | None:
        """The DequantizeLinear that makes `value`."""
        made = self.maker(value)
        return made if made is not None and not made.quantizes else None

    def maker(self, value: ir.Value | None) -> Quantizer | None:
        """The QuantizeLinear or DequantizeLinear that makes `value`."""
        node = None if value is None else value.producer()
        return None if node is None else self.quantizers.get(node)

    def shape(self, value: ir.Value | None) -> tuple[int | None, ...] | None:
        """Shape of a value, None for a length that is not fixed; None when even the rank is unknown."""
        return shape_of(value)

    def array(self, value: ir.Value | None) -> npt.NDArray[Any] | None:
        """What a stored value holds; None when it is computed."""
        return stored(value)


@contextmanager
def _quiet_inference() -> Iterator[None]:
    """Shape inference may fail on a broken graph: then less is known, which is no reason to print a traceback."""

    def silent(record: logging.LogRecord) -> bool:
        del record
        return False

    _INFERENCE.addFilter(silent)
    try:
        yield
    finally:
        _INFERENCE.removeFilter(silent)
