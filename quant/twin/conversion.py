"""From an ONNX graph to a `torch.fx` graph: the one file that knows `onnx2fx`.

Its builder walks the graph and keeps the books; operators come from `quant.twin.operators` first, and from `onnx2fx` where it is
known to compute what ONNX says (`TAKEN`). Nothing else is taken from it: a form that it quietly computes otherwise would
be worse than one that is refused.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import onnx
import onnx_ir as ir
import torch
from onnx2fx.exceptions import Onnx2FxError
from onnx2fx.graph_builder import GraphBuilder
from onnx2fx.op_registry import get_handler
from torch import fx

from quant.errors import ModelError
from quant.graph.model import constant, opset
from quant.twin.operators import Call, Unsupported, from_numpy, load
from quant.twin.operators.numbers import numeric

TAKEN = frozenset(
    {
        "AffineGrid",
        "BitShift",
        "BlackmanWindow",
        "CenterCropPad",
        "Col2Im",
        "Det",
        "GridSample",
        "HammingWindow",
        "HannWindow",
        "Hardmax",
        "LpPool",
        "MaxUnpool",
        "MelWeightMatrix",
        "NegativeLogLikelihoodLoss",
        "NonZero",
        "RNN",
        "ReverseSequence",
        "TensorScatter",
    }
)
"""Operators that `onnx2fx` computes as ONNX says, by ONNX's own tests."""
LEAST_OPSET = 13
_MOVING = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat", "Identity", "Expand", "Split", "MaxPool"})


def claimed() -> frozenset[str]:
    """ONNX operators that the twin computes."""
    return frozenset(load()) | TAKEN | {"Constant", "Shape", "Size"}


@dataclass
class Converted:
    """What became of a graph.

    Args:
        module: The module; weights are its parameters, in the order of the graph.
        inputs: Names of the graph's inputs, in order.
        outputs: Names of its outputs, in order.
        values: ONNX value -> the fx node that makes it.
        nodes: ONNX node -> the fx node that makes its first output.
        attributes: Initializer -> name of the parameter or buffer that holds it.
    """

    module: fx.GraphModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[str, fx.Node] = field(default_factory=dict)
    nodes: dict[str, fx.Node] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)


def convert(model: ir.Model) -> Converted:
    """`model` as a `torch.fx` module.

    Raises:
        ModelError: An operator, or a form of one, that the twin does not compute; the node is named.
    """
    if opset(model) < LEAST_OPSET:
        raise ModelError(f"the model is written for ONNX opset {opset(model)}", hint=f"convert it to opset {LEAST_OPSET} or newer first")
    return _Builder(model).converted()


def untrainable(model: ir.Model) -> str | None:
    """Why `model` has no twin, as far as its operators tell; None when they do not."""
    known = claimed()
    for node in model.graph:
        if node.domain not in {"", "ai.onnx"} or node.op_type not in known:
            own = f"{node.domain}.{node.op_type}" if node.domain not in {"", "ai.onnx"} else node.op_type
            return f"the model has the operator {own}, which has no form that can be trained"
    return None


def name_of(node: ir.Node) -> str:
    """What a node goes by: its name, or its operator and first output."""
    return node.name or f"{node.op_type}_{node.outputs[0].name}"


class _Builder(GraphBuilder):
    """Builds the fx graph; also what handlers of `onnx2fx` are given.

    Args:
        model: The ONNX model. Its weights stay where they are until each is read.
    """

    def __init__(self, model: ir.Model) -> None:
        # Not the constructor of `onnx2fx`: that wants the whole model as one protobuf, and gives two names that differ only in
        # a dot the same attribute.
        self._source = model
        self._handlers = load()
        self._read = {str(v.name): v for v in (*model.graph.inputs, *model.graph.initializers.values(), *(v for n in model.graph for v in n.outputs))}
        self._outputs = {str(v.name) for v in model.graph.outputs}
        self.model = onnx.ModelProto()
        self.graph = fx.Graph()
        self.env: dict[str, fx.Node] = {}
        self.initializer_map: dict[str, torch.Tensor] = {}
        self._numbers: dict[str, Any] = {}
        self._tensors_of: dict[str, torch.Tensor] = {}
        self._constants: dict[str, torch.Tensor] = {}
        self._submodules: dict[str, torch.nn.Module] = {}
        self._opset_versions = {"": opset(model)}
        self._taken: set[str] = set()
        self._root = torch.nn.Module()
        self._attributes: dict[str, str] = {}
        self._node = ""

    # What operators ask.

    def tensor(self, name: str) -> fx.Node:
        if name not in self.env:
            if name in self._numbers:
                self.env[name] = self.emit(tensor_of, self._numbers[name], _integer_type(self._read[name]))
            else:
                self._add_constant(name)
        return self.env[name]

    get_value = tensor

    def number(self, name: str) -> Any:
        if name in self._numbers:
            return self._numbers[name]
        array = self.constant(name)
        if array is not None:
            return array.tolist()
        self._numbers[name] = self.emit(numbers_of, self.tensor(name))
        return self._numbers[name]

    def is_number(self, name: str) -> bool:
        return name in self._numbers and name not in self.env

    def constant(self, name: str) -> npt.NDArray[Any] | None:
        return constant(self._read.get(name))

    def kind(self, name: str) -> int | None:
        value = self._read.get(name)
        return None if value is None or value.dtype is None else int(value.dtype)

    def rank(self, name: str) -> int | None:
        value = self._read.get(name)
        return None if value is None or value.shape is None else len(value.shape)

    def emit(self, function: Callable[..., Any], *arguments: Any) -> fx.Node:
        made = self.graph.call_function(function, arguments)
        made.meta["onnx_node"] = self._node
        return made

    def call_function(self, func: Callable[..., Any], args: Any = (), kwargs: Any = None) -> fx.Node:
        made = super().call_function(func, args, kwargs)
        made.meta["onnx_node"] = self._node
        return made

    def integer_readers(self, name: str) -> bool:
        if name in self._outputs:
            return True
        for node, position in self._read[name].uses():
            if node.op_type == "DequantizeLinear" and position == 0:
                continue
            if node.op_type not in _MOVING or any(self.integer_readers(str(v.name)) for v in node.outputs if v.name):
                return True
        return False

    def otherwise(self, node: onnx.NodeProto) -> fx.Node | tuple[fx.Node | None, ...]:
        handler = get_handler(node.op_type, "", self.opset_version)
        assert handler is not None, f"onnx2fx has no {node.op_type}"
        made = handler(self, node)
        assert isinstance(made, fx.Node), f"onnx2fx gives no node for {node.op_type}"
        return made if len(node.output) == 1 else tuple(self.emit(item_or_whole, made, i) if name else None for i, name in enumerate(node.output))

    # The walk.

    def converted(self) -> Converted:
        weights = self._source.graph.initializers
        inputs = [str(v.name) for v in self._source.graph.inputs if v.name not in weights]
        for name in inputs:
            self.env[name] = self.graph.placeholder(self._identifier(name))
            self.env[name].meta["onnx_value"] = name
        for name in weights:
            self._add_constant(str(name))
        nodes: dict[str, fx.Node] = {}
        for node in self._source.graph:
            if node.op_type != "Constant":
                self._convert(node)
                first = self.env.get(str(node.outputs[0].name))
                if first is not None:
                    nodes[name_of(node)] = first
        self._node = ""
        outputs = [str(v.name) for v in self._source.graph.outputs]
        self.graph.output(tuple(self.tensor(name) for name in outputs))
        for name, tensor in self._constants.items():  # what handlers of onnx2fx keep
            self._root.register_buffer(name, tensor)
        for name, module in self._submodules.items():
            self._root.add_module(name, module)
        self.graph.eliminate_dead_code()
        alive = set(self.graph.nodes)
        module = fx.GraphModule(self._root, self.graph, "Twin")
        module.graph.lint()
        module.eval()
        values = {name: made for name, made in self.env.items() if made in alive}
        attributes = {name: attribute for name, attribute in self._attributes.items() if name in values}
        return Converted(module, tuple(inputs), tuple(outputs), values, {k: v for k, v in nodes.items() if v in alive}, attributes)

    def _convert(self, node: ir.Node) -> None:
        self._node = name_of(node)
        where = f"node {self._node!r} ({node.op_type})"
        proto = ir.to_proto(node)
        if node.domain not in {"", "ai.onnx"} or node.op_type not in claimed():
            own = f"{node.domain}.{node.op_type}" if node.domain not in {"", "ai.onnx"} else node.op_type
            hint = "write it in other operators, or choose a scheme and options that need no gradients"
            raise ModelError(f"operator {own} has no form that can be trained", where=where, hint=hint)
        call = Call(self, proto)
        try:
            number = numeric(call)
            if number is not None:
                self._numbers[proto.output[0]] = number
                return
            build = self._handlers.get(node.op_type)
            made = self.otherwise(proto) if build is None else build(call)
        except (Unsupported, Onnx2FxError) as error:
            raise ModelError(f"{error}: this has no form that can be trained", where=where, hint="write it in other operators") from error
        for name, output in zip(proto.output, made if isinstance(made, tuple) else (made,), strict=False):
            if name and output is not None:
                output.meta["onnx_value"] = name
                self.env[name] = output

    def _add_constant(self, name: str) -> None:
        """Take in a constant: float weights as parameters that want no gradient yet, all else as buffers."""
        array = self.constant(name)
        assert array is not None, f"{name!r} is made by no node before it is read"
        try:
            tensor, attribute = from_numpy(array), self._identifier(name)
        except Unsupported as error:
            raise ModelError(f"{error} have no form that can be trained", where=f"weight {name!r}") from error
        if name in self._source.graph.initializers and tensor.dtype in {torch.float32, torch.float16, torch.bfloat16, torch.float64}:
            self._root.register_parameter(attribute, torch.nn.Parameter(tensor, requires_grad=False))
        else:
            self._root.register_buffer(attribute, tensor)
        if name in self._source.graph.initializers:
            self._attributes[name] = attribute
            self.initializer_map[name] = tensor
        self.env[name] = self.graph.get_attr(attribute)
        self.env[name].meta["onnx_value"] = name

    def _identifier(self, name: str) -> str:
        """A Python identifier for an ONNX name that no other name has."""
        wanted = re.sub(r"\W", "_", name, flags=re.ASCII) or "unnamed"
        wanted = f"_{wanted}" if wanted[0].isdigit() or keyword.iskeyword(wanted) or hasattr(fx.GraphModule, wanted) else wanted
        unique, number = wanted, 1
        while unique in self._taken:
            number += 1
            unique = f"{wanted}_{number}"
        self._taken.add(unique)
        return unique


def _integer_type(value: ir.Value) -> torch.dtype:
    return torch.int32 if value.dtype == ir.DataType.INT32 else torch.bool if value.dtype == ir.DataType.BOOL else torch.int64


def item_or_whole(made: Any, index: int) -> Any:
    """One of several outputs, or the only one that a handler of `onnx2fx` gives."""
    return made[index] if isinstance(made, (tuple, list)) else made


def tensor_of(number: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number as a tensor; symbols in it stay symbols under `torch.export`.

    Example:
        >>> tensor_of([2, 3], torch.int64)
        tensor([2, 3])
    """
    if not isinstance(number, (list, tuple)):
        return torch.scalar_tensor(number, dtype=dtype)
    if not number:
        return torch.zeros(0, dtype=dtype)
    return torch.stack([torch.scalar_tensor(n, dtype=dtype) for n in number])


def numbers_of(tensor: torch.Tensor) -> Any:
    """A tensor as a number: where a shape is computed from values, not from shapes."""
    return tensor.tolist()
