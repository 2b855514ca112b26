"""Small graphs with one difficulty each; a test file loads this one by its path."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS = 3
"""Length of a symbolic dimension in `feed`."""


def node(op, inputs, outputs, name=None, **attributes):
    """A node; inputs and outputs as words in one string, `-` for one that is left out."""
    split = ["" if word == "-" else word for word in inputs.split()]
    return helper.make_node(op, split, outputs.split(), name=op.lower() + "_" + outputs.split()[0] if name is None else name, **attributes)


def model(nodes, inputs, outputs, weights=None, *, opset=21, types=None):
    """A checked ONNX model; `inputs` and `outputs` are name -> shape (None: what inference finds)."""
    types = types or {}
    infos = [[helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), s) for n, s in part.items()] for part in (inputs, outputs)]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    made = helper.make_model(helper.make_graph(nodes, "g", *infos, tensors), opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    made = onnx.shape_inference.infer_shapes(made, strict_mode=True)
    onnx.checker.check_model(made, full_check=True)
    return made


def feed(proto, seed=0, scale=1.0):
    """Normally distributed inputs; symbolic dimensions are `ROWS` long."""
    r = np.random.default_rng(seed)
    shapes = {i.name: [d.dim_value or ROWS for d in i.type.tensor_type.shape.dim] for i in proto.graph.input}
    kinds = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in proto.graph.input}
    return {n: (r.normal(size=s) * scale).astype(kinds[n]) if kinds[n].kind == "f" else r.integers(0, 2, s).astype(bool) for n, s in shapes.items()}


def draw(*shape, seed=1, scale=0.3):
    """A weight."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def uneven(array, axis):
    """`array` with slices along `axis` of very different size, so that a scale along the wrong axis is seen."""
    shape = [1] * array.ndim
    shape[axis] = -1
    return array * np.logspace(-2, 0, array.shape[axis], dtype=np.float32).reshape(shape)


def _conv_chain(*between, weights=None, channels=8):
    """Conv -> `between` -> Conv -> ReLU -> Conv -> output."""
    return model(
        [
            node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1]),
            *between,
            node("Conv", "m w2 b2", "c2", pads=[1, 1, 1, 1]),
            node("Relu", "c2", "r2"),
            node("GlobalAveragePool", "r2", "p"),
            node("Flatten", "p", "f"),
            node("Gemm", "f w3 b3", "y"),
        ],
        {"x": ["N", 3, 8, 8]},
        {"y": ["N", 5]},
        {
            "w1": draw(8, 3, 3, 3),
            "b1": draw(8, seed=2),
            "w2": draw(8, channels, 3, 3, seed=3),
            "b2": draw(8, seed=4),
            "w3": draw(8, 5, seed=5),
            "b3": draw(5, seed=6),
            **(weights or {}),
        },
    )


def _scalar(value):
    return np.float32(value)


def _gemm(inputs="x w b", shape=("N", 16), weight=None, bias=None, **attributes):
    weight = draw(16, 8) if weight is None else weight
    nodes = [node("Gemm", inputs, "y", **attributes)]
    weights = {"w": weight} | ({"b": bias if bias is not None else draw(8, seed=2, scale=1.0)} if "b" in inputs.split() else {})
    return model(nodes, {"x": list(shape)}, {"y": None}, weights)


def _if_that_captures():
    branches = [
        helper.make_graph(
            [node("Mul", f"h {k}", f"{k}_out")],
            k,
            [],
            [helper.make_tensor_value_info(f"{k}_out", TensorProto.FLOAT, ["N", 8])],
            [numpy_helper.from_array(_scalar(v), k)],
        )
        for k, v in (("two", 2), ("three", 3))
    ]
    return model(
        [node("MatMul", "x w", "h"), node("If", "flag", "picked", then_branch=branches[0], else_branch=branches[1]), node("MatMul", "picked w2", "y")],
        {"x": ["N", 16], "flag": []},
        {"y": ["N", 4]},
        {"w": draw(16, 8), "w2": draw(8, 4)},
        types={"flag": TensorProto.BOOL},
    )


def _conv_seen_inside_if():
    branches = [
        helper.make_graph(
            [node("Mul", f"c {k}", f"{k}_out")],
            k,
            [],
            [helper.make_tensor_value_info(f"{k}_out", TensorProto.FLOAT, ["N", 8, 8, 8])],
            [numpy_helper.from_array(_scalar(v), k)],
        )
        for k, v in (("two", 2), ("three", 3))
    ]
    return model(
        [
            node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
            node("If", "flag", "p", then_branch=branches[0], else_branch=branches[1]),
            node("Conv", "c w2", "d"),
            node("Conv", "p w2", "e"),
        ],
        {"x": ["N", 3, 8, 8], "flag": []},
        {"d": None, "e": None},
        {"w": draw(8, 3, 3, 3), "w2": draw(4, 8, 1, 1)},
        types={"flag": TensorProto.BOOL},
    )


ZOO = {
    "conv": lambda: model(
        [node("Conv", "x w b", "y", pads=[1, 1, 1, 1])], {"x": ["N", 3, 8, 8]}, {"y": ["N", 8, 8, 8]}, {"w": uneven(draw(8, 3, 3, 3), 0), "b": draw(8)}
    ),
    "conv without bias, as an empty name": lambda: model([node("Conv", "x w -", "y")], {"x": ["N", 3, 8, 8]}, {"y": None}, {"w": uneven(draw(8, 3, 3, 3), 0)}),
    "depthwise conv": lambda: model(
        [node("Conv", "x w b", "y", group=8)], {"x": ["N", 8, 8, 8]}, {"y": None}, {"w": uneven(draw(8, 1, 3, 3), 0), "b": draw(8)}
    ),
    "grouped conv": lambda: model([node("Conv", "x w b", "y", group=2)], {"x": ["N", 8, 8, 8]}, {"y": None}, {"w": uneven(draw(6, 4, 3, 3), 0), "b": draw(6)}),
    "conv 1-D": lambda: model([node("Conv", "x w b", "y")], {"x": ["N", 3, 20]}, {"y": None}, {"w": uneven(draw(8, 3, 5), 0), "b": draw(8)}),
    "conv 3-D": lambda: model([node("Conv", "x w b", "y")], {"x": ["N", 2, 6, 6, 6]}, {"y": None}, {"w": uneven(draw(4, 2, 3, 3, 3), 0), "b": draw(4)}),
    "transposed conv": lambda: model(
        [node("ConvTranspose", "x w b", "t"), node("Conv", "t w2", "y")],
        {"x": ["N", 4, 5, 5]},
        {"y": None},
        {"w": draw(4, 3, 3, 3), "b": draw(3), "w2": draw(2, 3, 1, 1)},
    ),
    "matmul": lambda: model([node("MatMul", "x w", "y")], {"x": ["N", 16]}, {"y": ["N", 8]}, {"w": uneven(draw(16, 8), 1)}),
    "matmul of rank 3": lambda: model([node("MatMul", "x w", "y")], {"x": ["N", "T", 16]}, {"y": ["N", "T", 8]}, {"w": uneven(draw(16, 8), 1)}),
    "matmul with a weight of rank 3": lambda: model([node("MatMul", "x w", "y")], {"x": [2, "T", 16]}, {"y": [2, "T", 8]}, {"w": uneven(draw(2, 16, 8), 2)}),
    "matmul with the weight on the left": lambda: model([node("MatMul", "w x", "y")], {"x": [16, "N"]}, {"y": [8, "N"]}, {"w": uneven(draw(8, 16), 0)}),
    "matmul of vectors": lambda: model(
        [node("MatMul", "x w", "y"), node("MatMul", "v w2", "z")], {"x": [16], "v": ["N", 16]}, {"y": [8], "z": ["N"]}, {"w": draw(16, 8), "w2": draw(16)}
    ),
    "matmul and bias": lambda: model(
        [node("MatMul", "x w", "m"), node("Add", "b m", "y")], {"x": ["N", 16]}, {"y": ["N", 8]}, {"w": uneven(draw(16, 8), 1), "b": draw(8)}
    ),
    "matmul and bias of rank 3": lambda: model(
        [node("MatMul", "x w", "m"), node("Add", "m b", "y")], {"x": ["N", 2, 16]}, {"y": None}, {"w": draw(16, 8), "b": draw(8)}
    ),
    "gemm": lambda: _gemm(weight=uneven(draw(16, 8), 1)),
    "gemm transB": lambda: _gemm(weight=uneven(draw(8, 16), 0), transB=1),
    "gemm transA": lambda: _gemm(shape=(16, "N"), weight=uneven(draw(16, 8), 1), transA=1),
    "gemm without bias": lambda: _gemm("x w"),
    "gemm with factors": lambda: _gemm(alpha=0.37, beta=2.5),
    "gemm with a negative factor": lambda: _gemm(alpha=-1.5, beta=-0.25, transB=1, weight=draw(8, 16)),
    "gemm with a bias of one number": lambda: _gemm(bias=_scalar(0.7)),
    "gemm with a bias row of two axes": lambda: _gemm(bias=draw(1, 8, scale=1.0)),
    "gemm with a bias column": lambda: _gemm(shape=(8, 16), bias=draw(8, 1, scale=1.0)),
    "gemm with a bias matrix": lambda: _gemm(shape=(3, 16), bias=draw(3, 8, scale=1.0)),
    "gemm with a computed bias": lambda: model([node("Gemm", "x w c", "y")], {"x": ["N", 16], "c": ["N", 8]}, {"y": None}, {"w": draw(16, 8)}),
    "gemm with a computed and scaled bias": lambda: model(
        [node("Gemm", "x w c", "y", beta=0.5)], {"x": ["N", 16], "c": ["N", 8]}, {"y": None}, {"w": draw(16, 8)}
    ),
    "gemm with a computed weight": lambda: model([node("Gemm", "x v", "y")], {"x": ["N", 16], "v": [16, 8]}, {"y": None}),
    "product of two activations": lambda: model([node("MatMul", "q k", "y")], {"q": ["N", 4, 16], "k": ["N", 16, 4]}, {"y": None}),
    "square of an activation": lambda: model([node("MatMul", "x x", "y")], {"x": ["N", 8, 8]}, {"y": None}),
    "attention": lambda: model(
        [
            node("MatMul", "x wq", "q"),
            node("MatMul", "x wk", "k"),
            node("MatMul", "x wv", "v"),
            node("Transpose", "k", "kt", perm=[0, 2, 1]),
            node("MatMul", "q kt", "s"),
            node("Mul", "s scale", "t"),
            node("Softmax", "t", "p", axis=-1),
            node("MatMul", "p v", "o"),
            node("MatMul", "o wo", "m"),
            node("Add", "m x", "y"),
        ],
        {"x": ["N", 6, 16]},
        {"y": None},
        {"wq": draw(16, 16), "wk": draw(16, 16, seed=2), "wv": draw(16, 16, seed=3), "wo": draw(16, 16, seed=4), "scale": _scalar(0.25)},
    ),
    "one weight, two layers": lambda: model(
        [node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("MatMul", "r w", "y")], {"x": ["N", 8]}, {"y": None}, {"w": draw(8, 8)}
    ),
    "one input, two layers": lambda: model(
        [node("Conv", "x w", "c"), node("Conv", "x v", "d"), node("Add", "c d", "y")],
        {"x": ["N", 3, 6, 6]},
        {"y": None},
        {"w": draw(4, 3, 3, 3), "v": draw(4, 3, 3, 3, seed=8)},
    ),
    "a weight that is given out": lambda: model([node("MatMul", "x w", "y")], {"x": ["N", 16]}, {"y": ["N", 8], "w": [16, 8]}, {"w": draw(16, 8)}),
    "a layer's input that is given out": lambda: model(
        [node("Relu", "x", "r"), node("MatMul", "r w", "y")], {"x": ["N", 16]}, {"r": ["N", 16], "y": None}, {"w": draw(16, 8)}
    ),
    "a conv in the middle that is given out": lambda: model(
        [node("Conv", "x w", "c"), node("Conv", "c v", "y")], {"x": ["N", 3, 6, 6]}, {"c": None, "y": None}, {"w": draw(4, 3, 3, 3), "v": draw(2, 4, 1, 1)}
    ),
    "an enormous bias": lambda: model(
        [node("Conv", "x w b", "y")],
        {"x": ["N", 3, 6, 6]},
        {"y": None},
        {"w": np.concatenate([draw(3, 3, 3, 3), 1e-9 * draw(1, 3, 3, 3)]), "b": np.float32([1.0, -1.0, 0.5, 1.0])},
    ),
    "channels of zeros": lambda: model(
        [node("Conv", "x w b", "y")],
        {"x": ["N", 3, 6, 6]},
        {"y": None},
        {"w": draw(4, 3, 3, 3) * np.float32([1, 0, 1, 0]).reshape(4, 1, 1, 1), "b": np.float32([0.3, 0.37, -0.2, 0])},
    ),
    "matrix product plus a computed matrix": lambda: model(
        [node("MatMul", "x w", "m"), node("Add", "x m", "y")], {"x": ["N", 8]}, {"y": None}, {"w": draw(8, 8)}
    ),
    "matrix product plus a number": lambda: model(
        [node("MatMul", "x w", "m"), node("Add", "m k", "y")], {"x": ["N", 8]}, {"y": None}, {"w": draw(8, 8), "k": _scalar(2)}
    ),
    "matrix product plus itself": lambda: model([node("MatMul", "x w", "m"), node("Add", "m m", "y")], {"x": ["N", 8]}, {"y": None}, {"w": draw(8, 8)}),
    "product of two matrices plus a mask": lambda: model(
        [node("MatMul", "q k", "s"), node("Add", "s mask", "y")], {"q": ["T", 16], "k": [16, "S"], "mask": ["T", "S"]}, {"y": None}
    ),
    "a weight of zeros": lambda: model(
        [node("MatMul", "x w", "m"), node("Sub", "m x", "y")], {"x": ["N", 8]}, {"y": None}, {"w": np.zeros((8, 8), np.float32)}
    ),
    "nodes without names": lambda: model(
        [node("MatMul", "x w", "h", ""), node("Relu", "h", "r", ""), node("MatMul", "r v", "y", "")],
        {"x": ["N", 8]},
        {"y": None},
        {"w": draw(8, 8), "v": draw(8, 4)},
    ),
    "names that are taken": lambda: model(
        [
            node("Conv", "x w b", "c", "conv"),
            node("Relu", "c", "c_scale"),
            node("Relu", "c_scale", "c_quantized"),
            node("Relu", "c_quantized", "x_scale"),
            node("Relu", "x_scale", "c_fp16"),
            node("Relu", "c_fp16", "x_quantized"),
            node("Relu", "x_quantized", "x_zero_point"),
            node("Conv", "x_zero_point v", "y", "conv_weight_DequantizeLinear"),
        ],
        {"x": ["N", 3, 6, 6]},
        {"y": None, "x_scale": None},
        {"w": draw(4, 3, 3, 3), "b": draw(4), "v": draw(4, 4, 1, 1)},
    ),
    "an if that captures": _if_that_captures,
    "a conv seen inside an if": _conv_seen_inside_if,
    "relu": lambda: _conv_chain(node("Relu", "c1", "m")),
    "relu6": lambda: _conv_chain(node("Clip", "c1 lo hi", "m"), weights={"lo": _scalar(0), "hi": _scalar(1.5)}),
    "clip without a lower bound": lambda: _conv_chain(node("Clip", "c1 - hi", "m"), weights={"hi": _scalar(1.5)}),
    "clip without an upper bound": lambda: _conv_chain(node("Clip", "c1 lo", "m"), weights={"lo": _scalar(0)}),
    "clip on both sides of zero": lambda: _conv_chain(node("Clip", "c1 lo hi", "m"), weights={"lo": _scalar(-1.1), "hi": _scalar(0.7)}),
    "clip away from zero": lambda: _conv_chain(node("Clip", "c1 lo hi", "m"), weights={"lo": _scalar(0.5), "hi": _scalar(2)}),
    "clip with computed bounds": lambda: _conv_chain(
        node("ReduceMax", "c1", "top", keepdims=0),
        node("Mul", "top half", "hi"),
        node("Clip", "c1 lo hi", "m"),
        weights={"lo": _scalar(0), "half": _scalar(0.5)},
    ),
    "conv as a bound of clip": lambda: model(
        [node("Conv", "x w", "c"), node("ReduceMax", "c", "hi", keepdims=0), node("Clip", "x - hi", "m"), node("Conv", "m v", "y")],
        {"x": ["N", 3, 6, 6]},
        {"y": None},
        {"w": draw(4, 3, 3, 3), "v": draw(4, 3, 1, 1)},
    ),
    "residual with relu": lambda: _conv_chain(
        node("Relu", "c1", "r1"),
        node("Conv", "r1 wr", "cr", pads=[1, 1, 1, 1]),
        node("Add", "cr r1", "a"),
        node("Relu", "a", "m"),
        weights={"wr": draw(8, 8, 3, 3, seed=7)},
    ),
    "add of a number": lambda: _conv_chain(node("Add", "c1 k", "m"), weights={"k": _scalar(3)}),
    "hard swish": lambda: _conv_chain(
        node("Add", "c1 three", "a"),
        node("Clip", "a lo six", "g"),
        node("Mul", "c1 g", "h"),
        node("Div", "h six", "m"),
        weights={"three": _scalar(3), "six": _scalar(6), "lo": _scalar(0)},
    ),
    "swish": lambda: _conv_chain(node("Sigmoid", "c1", "s"), node("Mul", "c1 s", "m")),
    "leaky relu": lambda: _conv_chain(node("LeakyRelu", "c1", "m", alpha=0.1)),
    "concat of different scales": lambda: _conv_chain(
        node("Relu", "c1", "r1"),
        node("Conv", "x wb", "big", pads=[1, 1, 1, 1]),
        node("Concat", "r1 big", "m", axis=1),
        weights={"wb": draw(4, 3, 3, 3, scale=3.0)},
        channels=12,
    ),
    "concat with a graph input": lambda: _conv_chain(node("Concat", "c1 x", "m", axis=1), channels=11),
    "max pool of negative values": lambda: _conv_chain(node("MaxPool", "c1", "m", kernel_shape=[2, 2]), weights={"b1": np.full(8, -5, np.float32)}),
    "max pool with padding, and relu": lambda: _conv_chain(node("MaxPool", "c1", "o", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Relu", "o", "m")),
    "average pool": lambda: _conv_chain(node("AveragePool", "c1", "m", kernel_shape=[2, 2], strides=[2, 2])),
    "a conv read by floats too": lambda: _conv_chain(node("Relu", "c1", "m"), node("Exp", "c1", "e"), node("ReduceMean", "e", "unused")),
    "a moved tensor that floats read too": lambda: model(
        [node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "t w", "y"), node("MatMul", "x v", "z"), node("Softmax", "t", "s", axis=-1)],
        {"x": ["N", 4, 8]},
        {"y": None, "z": None, "s": None},
        {"w": draw(4, 5), "v": draw(8, 5)},
    ),
    "reshape between convs": lambda: model(
        [
            node("Conv", "x w", "c"),
            node("Reshape", "c to", "r"),
            node("Transpose", "r", "t", perm=[0, 2, 1]),
            node("MatMul", "t v", "y"),
            node("Exp", "r", "e"),
        ],
        {"x": ["N", 3, 6, 6]},
        {"y": None, "e": None},
        {"w": draw(4, 3, 3, 3), "to": np.int64([0, 0, -1]), "v": draw(4, 5)},
    ),
}


def already_quantized():
    """A conv in Q/DQ form, followed by one in float."""
    codes = np.random.default_rng(3).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    return model(
        [
            node("QuantizeLinear", "x s z", "xq"),
            node("DequantizeLinear", "xq s z", "xd"),
            node("DequantizeLinear", "wq ws wz", "wd", axis=0),
            node("Conv", "xd wd", "c", "theirs"),
            node("Relu", "c", "r"),
            node("Conv", "r v", "y", "ours"),
        ],
        {"x": ["N", 3, 6, 6]},
        {"y": None},
        {"s": np.float32(0.03), "z": np.uint8(128), "wq": codes, "ws": np.full(4, 0.004, np.float32), "wz": np.zeros(4, np.int8), "v": draw(2, 4, 1, 1)},
    )
