"""Edges of the twin: a tensor on its way to one reader, with a gradient of its own.

Rounding a tensor for one of its readers changes what that reader gives, and nothing else; to first order by the gradient that comes
back through this reader alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from quant.graph.behind import name_of
from quant.graph.changes import Edge, Rewritten, Unreadable
from quant.graph.layers import TABLE_OP, Layer
from quant.graph.model import attribute, constant
from quant.twin.operators.elementwise import EIGHT_BIT_FLOATS
from quant.twin.operators.quantizing import INTEGERS, dequantize, quantize, quantize_float
from quant.twin.twin import Feed, Twin

Place = tuple[str, str | None]
"""(tensor, node that reads it); (tensor, None): everybody."""
Rounding = Callable[[torch.Tensor], torch.Tensor]
_FLOATS = {ir.DataType.FLOAT16: torch.float16, ir.DataType.BFLOAT16: torch.bfloat16, ir.DataType.FLOAT: torch.float32}
_BIAS, _MATRIX = 2, 2
_OPERANDS = {"Conv": 3, "ConvTranspose": 3, "Gemm": 3}
_MEMORY_BOUND = 8
"""A scalar product of two matrices takes about as long as that many rows of a product with one of them: it waits for memory."""


class EdgeRun(fx.Interpreter):
    """Runs a twin and keeps what passes some of its edges.

    Args:
        twin: The twin; several runs of one twin may go on at the same time.
        places: The edges.

    Attributes:
        kept: Edge -> what passed it, to take gradients of.
    """

    def __init__(self, twin: Twin, places: Collection[Place]) -> None:
        super().__init__(twin.module)
        self._twin = twin
        self._private: dict[tuple[fx.Node, str], Place] = {}
        self._common: dict[fx.Node, Place] = {}
        for tensor, reader in places:
            if reader is None:
                self._common[twin.tensor(tensor)] = (tensor, None)
            else:
                self._private[twin.tensor(tensor), reader] = (tensor, reader)
        self.kept: dict[Place, torch.Tensor] = {}

    def outputs(self, feed: Feed) -> dict[str, torch.Tensor]:
        """The outputs for one batch, with their history."""
        with torch.enable_grad():
            found = self.run(*self._twin.arguments(feed))
        return dict(zip(self._twin.outputs, found, strict=True))

    def run_node(self, n: fx.Node) -> Any:
        """As `fx.Interpreter` does, and keep it if it is asked for."""
        out = getattr(self, n.op)(n.target, *self.fetch_args_kwargs_from_env(n))  # without the traces that `fx` keeps of every node
        place = self._common.get(n)
        if place is not None:
            out = out if out.requires_grad else _start(out)
            self.kept[place] = out
        return out

    def map_nodes_to_values(self, args: Any, n: fx.Node) -> Any:
        """What `n` is given: over edges that are asked for, copies of its own."""
        reader = str(n.meta.get("onnx_node", ""))

        def load(node: fx.Node) -> Any:
            value = self.env[node]
            place = self._private.get((node, reader))
            if place is None:
                return value
            if place not in self.kept:
                self.kept[place] = value.view_as(value) if value.requires_grad else _start(value)
            return self.kept[place]

        return torch.fx.map_arg(args, load)


def _start(value: torch.Tensor) -> torch.Tensor:
    """`value`, from where gradients start if it can have one."""
    return value.detach().requires_grad_() if value.is_floating_point() else value


def places_of(change: Rewritten) -> set[Place]:
    """The edges that have to be kept to tell what a change does."""
    node = change.layer.node
    found: set[Place] = {(edge.tensor, edge.reader) for edge in change.edges}
    if change.weight is not None or change.bias is not None:
        found.add((str(node.outputs[0].name), None))
        found.add((_multiplied(change), name_of(node)))
    return found


def _multiplied(change: Rewritten) -> str:
    """The tensor that the weight of a layer multiplies, or that looks rows of it up."""
    layer = change.layer
    value = layer.node.inputs[1 if layer.op == TABLE_OP else layer.activations[0]]
    assert value is not None, "a layer reads something"
    return str(value.name)


class WeightShifts:
    """What changes of one layer's weight and bias add to what the layer gives, to be multiplied with gradients.

    A product costs as much as the layer itself. For a matrix product, what the layer reads times the gradient can be multiplied
    first: a matrix for each sample, of which every change of the weight takes but a scalar product.

    Args:
        twin: The twin of the graph as it was.
        changes: The changes, all of one layer.
    """

    def __init__(self, twin: Twin, changes: Sequence[Rewritten]) -> None:
        layer = changes[0].layer
        self.made: Place = (str(layer.node.outputs[0].name), None)
        self.source: Place = (_multiplied(changes[0]), name_of(layer.node))
        self._node = twin.node_of(layer.name)
        self._layer = layer
        if self._node.op != "call_function" or layer.weight is None or len(self._node.args) <= layer.weight:
            raise Unreadable(f"{layer.name!r} is not computed by one operation")
        shifts = [torch.zeros(layer.weight_shape or ()) if c.weight is None else torch.from_numpy(c.weight) for c in changes]
        self._is_matrix = _is_matrix_product(layer)
        self._shifts = torch.stack([_as_matrix(layer, shift) for shift in shifts] if self._is_matrix else shifts)
        self._biases = [None if c.bias is None else torch.from_numpy(c.bias) for c in changes]
        self._channels = 1 if layer.op in {"Conv", "ConvTranspose"} else -1

    def dotted(self, source: torch.Tensor, gradients: Sequence[torch.Tensor], rows: int) -> torch.Tensor:
        """Scalar product of each gradient with what each change adds, for each of `rows` samples, float64 `[changes, gradients, rows]`.

        Args:
            source: What the layer reads.
            gradients: Gradients of what it gives.
            rows: Samples that lie one after the other along the first axis; 1: all together.
        """
        if self._is_matrix:
            found = self._by_matrices(*([_as_rows(self._layer, t, rows) for t in part] for part in ([source], gradients)))
        else:
            added = [self._product(source, shift) for shift in self._shifts]
            found = torch.stack([torch.stack([dotted(g, more, rows) for g in gradients]) for more in added])
        for number, bias in enumerate(self._biases):
            if bias is not None:
                found[number] += torch.stack([(g.double().movedim(self._channels, -1) * bias).reshape(rows, -1).sum(dim=1) for g in gradients])
        return found

    def _by_matrices(self, sources: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        [x] = sources
        formats, places = len(self._shifts), x.shape[1]
        if len(gradients) * (places + _MEMORY_BOUND * formats) < formats * places:
            every = self._shifts.reshape(formats, -1)
            return torch.stack([every @ torch.bmm(x.transpose(1, 2), g).reshape(len(x), -1).t() for g in gradients], dim=1).double()
        return torch.stack([torch.stack([dotted(g, torch.matmul(x, shift), len(x)) for g in gradients]) for shift in self._shifts])

    def _product(self, source: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        """What the layer would give with `shift` for its weight, and no bias."""
        args = list(self._node.args)
        for position in range(min(_OPERANDS.get(self._layer.op, 2), len(args))):
            if position == self._layer.weight:
                args[position] = shift
            elif position == _BIAS:
                args[position] = None
            elif isinstance(args[position], fx.Node):
                args[position] = source
        assert callable(self._node.target), "a function is called"
        made: torch.Tensor = self._node.target(*args)
        return made


def _is_matrix_product(layer: Layer) -> bool:
    """Whether a layer multiplies rows by a matrix: a convolution of single places does."""
    node, shape = layer.node, layer.weight_shape or ()
    if layer.op == "Conv":
        pads, strides = attribute(node, "pads", [0]), attribute(node, "strides", [1])
        return attribute(node, "group", 1) == 1 and set(shape[2:]) <= {1} and not any(pads) and set(strides) <= {1}
    return layer.op in {"MatMul", "Gemm"} and layer.weight == 1 and len(shape) == _MATRIX and not attribute(node, "transA", 0)


def _as_matrix(layer: Layer, weight: torch.Tensor) -> torch.Tensor:
    """The weight of a matrix product as `[in, out]`."""
    if layer.op == "Conv":
        return weight.flatten(1).t().contiguous()
    if layer.op == "Gemm":
        weight = weight * float(attribute(layer.node, "alpha", 1.0))
        return weight.t().contiguous() if attribute(layer.node, "transB", 0) else weight
    return weight


def _as_rows(layer: Layer, values: torch.Tensor, rows: int) -> torch.Tensor:
    """What a matrix product reads, or gives, as `[samples, places, channels]`."""
    wide = values.flatten(2).transpose(1, 2) if layer.op == "Conv" else values
    return wide.reshape(rows, -1, wide.shape[-1])


def rounding_of(edge: Edge) -> tuple[tuple[Any, ...], Rounding]:
    """What an edge does to values, and a key that is the same for edges that do the same.

    Raises:
        Unreadable: A step is no rounding that torch has a form of.
    """
    steps = [_cast(edge.kind)] if edge.kind is not None else []
    steps += [_step(node) for node in edge.steps]
    key = tuple(key for key, _ in steps)

    def rounded(values: torch.Tensor) -> torch.Tensor:
        for _, step in steps:
            values = step(values)
        return values.to(torch.float32)

    return key, rounded


def _cast(kind: ir.DataType) -> tuple[Any, Rounding]:
    if kind not in _FLOATS:
        raise Unreadable(f"a cast to {kind.name}")
    dtype = _FLOATS[kind]
    return ("Cast", int(kind)), lambda values: values.to(dtype)


def _step(node: ir.Node) -> tuple[Any, Rounding]:
    if node.op_type == "Cast":
        return _cast(ir.DataType(int(attribute(node, "to", 1))))
    arrays = [constant(v) for v in node.inputs[1:]]
    key = (node.op_type, *(None if a is None else (a.dtype.str, a.shape, a.tobytes()) for a in arrays), *(str(a.value) for a in node.attributes.values()))
    place = int(attribute(node, "axis", 1)), int(attribute(node, "block_size", 0))
    if node.op_type == "Clip":
        low, high = (None if a is None else float(a) for a in [*arrays, None, None][:2])
        return key, lambda values: torch.clamp(values, low, high)
    if node.op_type not in {"QuantizeLinear", "DequantizeLinear"} or arrays[0] is None:
        raise Unreadable(f"activations pass {node.op_type}")
    scale = torch.from_numpy(arrays[0].astype("float32"))
    zero_value = node.inputs[2] if len(node.inputs) > _BIAS else None
    zero = None if zero_value is None else arrays[1]
    whole = None if zero is None or not zero.astype("float32").any() else torch.from_numpy(zero.astype("float32"))
    if node.op_type == "DequantizeLinear":
        return key, lambda values: dequantize(values, scale, whole, place, None)
    kind = int(zero_value.dtype) if zero_value is not None and zero_value.dtype is not None else int(ir.DataType.UINT8)
    if kind in EIGHT_BIT_FLOATS:
        dtype, largest = EIGHT_BIT_FLOATS[kind]
        return key, lambda values: quantize_float(values, scale, place, dtype, largest)
    if kind not in INTEGERS:
        raise Unreadable(f"activations in codes of type {ir.DataType(kind).name}")
    return key, lambda values: quantize(values, scale, whole, place, INTEGERS[kind])


def dotted(gradient: torch.Tensor, values: torch.Tensor, rows: int) -> torch.Tensor:
    """Scalar product of each of `rows` equal parts of two tensors, float64 `[rows]`.

    Example:
        >>> dotted(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 1.0], [0.5, 0.0]]), 2).tolist()
        [3.0, 1.5]
    """
    left, right = (t.expand_as(gradient).reshape(rows, 1, -1) for t in (gradient, values))
    return torch.bmm(left, right.transpose(1, 2)).reshape(rows).double()
