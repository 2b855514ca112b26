"""Small ONNX graphs, drawn a node a line."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import helper, numpy_helper

TYPES = {"f32": 1, "f16": 10, "bf16": 16, "u8": 2, "i8": 3, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f8": 17, "f8e5m2": 19, "u4": 21, "i4": 22, "f4": 23}


class Drawing:
    """A graph under construction; every method gives the name of the tensor that it makes."""

    def __init__(self, opset=23):
        self.opset = opset
        self.nodes, self.inputs, self.outputs, self.weights, self.domains = [], [], [], [], {}

    def input(self, name, shape, dtype="f16"):
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
        return name

    def output(self, name, shape, dtype="f16"):
        self.outputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))

    def weight(self, values, dtype="f32", name=None):
        name = name or f"w{len(self.weights)}"
        array = np.asarray(values)
        if dtype in {"f32", "f16", "u8", "i8", "i32", "i64"}:
            kind = {"f32": np.float32, "f16": np.float16, "u8": np.uint8, "i8": np.int8, "i32": np.int32, "i64": np.int64}[dtype]
            self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array.astype(kind)).reshape(array.shape), name))
        else:
            self.weights.append(helper.make_tensor(name, TYPES[dtype], array.shape, array.astype(np.float32).ravel()))
        return name

    def random(self, shape, dtype="f32", seed=0):
        values = np.random.default_rng(seed).normal(size=shape) / 4
        if dtype in {"i8", "i4", "u4"}:
            top = 7 if dtype != "i8" else 127
            values = np.clip(np.rint(values * top), 0 if dtype == "u4" else -top, top)
        return self.weight(values, dtype)

    def node(self, op, inputs, *, name=None, domain="", outputs=1, **attributes):
        number = len(self.nodes)
        names = [f"t{number}"] if outputs == 1 else [f"t{number}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=name or f"{op}_{number}", domain=domain, **attributes))
        if domain:
            self.domains[domain] = 1
        return names[0] if outputs == 1 else names

    def quantize(self, x, scale=0.05, zero=None, *, dtype="i8", scale_dtype="f32", **attributes):
        s = scale if isinstance(scale, str) else self.weight(scale, scale_dtype)
        zero = [] if zero is None else [zero if isinstance(zero, str) else self.weight(zero, dtype)]
        if not zero and self.opset >= 21:
            attributes.setdefault("output_dtype", TYPES[dtype])
        return self.node("QuantizeLinear", [x, s, *zero], **attributes)

    def dequantize(self, x, scale=0.05, zero=None, *, dtype="i8", scale_dtype="f32", to="f16", **attributes):
        s = scale if isinstance(scale, str) else self.weight(scale, scale_dtype)
        zero = [] if zero is None else [zero if isinstance(zero, str) else self.weight(zero, dtype)]
        if self.opset >= 23 and to is not None:
            attributes.setdefault("output_dtype", TYPES[to])
        return self.node("DequantizeLinear", [x, s, *zero], **attributes)

    def pair(self, x, scale=0.05, zero=None, *, dtype="i8", to="f16", **attributes):
        """A symmetric pair."""
        return self.dequantize(self.quantize(x, scale, zero, dtype=dtype, **attributes), scale, zero, dtype=dtype, to=to, **attributes)

    def coded(self, shape, axis=None, dtype="i8", to="f16", scale=0.01, **attributes):
        """A weight in codes behind its DequantizeLinear, with a scale per channel along `axis`."""
        codes = self.random(shape, dtype)
        if axis is None:
            return self.dequantize(codes, scale, dtype=dtype, to=to, **attributes)
        return self.dequantize(codes, np.full(shape[axis], scale), dtype=dtype, to=to, axis=axis, **attributes)

    def model(self):
        graph = helper.make_graph(self.nodes, "drawing", self.inputs, self.outputs, self.weights)
        imports = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(d, v) for d, v in self.domains.items())]
        return helper.make_model(graph, opset_imports=imports, ir_version=11)


@dataclass(frozen=True)
class Case:
    """A smallest graph that breaks a rule.

    Args:
        name: The rule's id, then what is special.
        drawing: The graph.
        refused: What TensorRT-RTX says when it refuses it; empty when it does not.
        says: What it warns of.
        layers: What the list of its layers (one a line) must fulfil where it takes the graph and runs something else.
        capability: What to build for.
        mild: Whether the finding is no error though RTX refuses: the build is to blame, not the file.
    """

    name: str
    drawing: Drawing
    refused: str = ""
    says: str = ""
    layers: Callable | None = None
    capability: str = "SM89"
    mild: bool = False

    @property
    def rule(self):
        return self.name.split("-")[0]


def runs(left, right):
    """Some layer multiplies these two types."""

    def holds(text):
        for line in text.splitlines():
            if any(f"LayerType: {kind}," in line for kind in ("gemm", "correlation", "runtime_fusion")):
                read = line.split("Outputs:")[0]
                types = re.findall(r"Datatype: (\w+)", read)
                if types[:2] == [left, right]:
                    return True
        return False

    return holds


def mentions(name):
    """Some layer has this in its name."""
    return lambda text: name in text


def as_it_is(g):
    """The input, not quantized."""
    del g
    return "x"


def conv(activation=None, weight=None, *, opset=23, body="f16", pad=1):
    """A convolution of 32 to 32 channels; both operands quantized as they should be where nothing else is given."""
    g = Drawing(opset)
    g.input("x", [1, 32, 16, 16], body)
    a = activation(g) if activation else g.pair("x", to=body)
    w = weight(g) if weight else g.coded((32, 32, 3, 3), 0, to=body)
    g.output(g.node("Conv", [a, w], pads=[pad] * 4), [1, 32, 16, 16], body)
    return g


def product(activation=None, weight=None, *, opset=23, body="f16", k=64, n=64, scale_dtype="f32"):
    """A matrix product; both operands quantized as they should be where nothing else is given."""
    g = Drawing(opset)
    g.input("x", [8, k], body)
    a = activation(g) if activation else g.pair("x", to=body)
    w = weight(g) if weight else g.coded((k, n), 1, to=body, scale_dtype=scale_dtype)
    g.output(g.node("MatMul", [a, w]), [8, n], body)
    return g
