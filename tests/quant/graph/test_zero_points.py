"""Zero points in biases: the same numbers without the subtraction, and only where nothing is padded."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from quant.graph.zero_points import move_zero_points

UINT8, INT8 = np.uint8, np.int8
PIXELS, ROWS = [1, 4, 6, 6], [3, 4]


def model(nodes, shapes, weights):
    """Float inputs and outputs by name (`x`, `y`, `z`); `weights` are arrays of any type."""
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    outputs = [info for name, info in infos.items() if name != "x"]
    made = helper.make_model(helper.make_graph(nodes, "g", [infos["x"]], outputs, tensors), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ir.from_proto(shape_inference.infer_shapes(made))


def pair(source, target):
    """Q/DQ behind `source`, with zero point 100 and scale 1/64."""
    return [
        helper.make_node("QuantizeLinear", [source, "s", "zp"], [f"{target}_q"], name=f"{target}_Q"),
        helper.make_node("DequantizeLinear", [f"{target}_q", "s", "zp"], [target], name=f"{target}_DQ"),
    ]


STEPS = {"s": np.float32(1 / 64), "zp": UINT8(100)}


def coded(shape, axis, seed=0):
    """Codes of a weight and a scale for each channel, which are not powers of two."""
    r = np.random.default_rng(seed)
    return {"w_q": r.integers(-127, 128, shape).astype(INT8), "w_s": r.uniform(0.001, 0.02, shape[axis]).astype(np.float32)}


def convolution(bias=True, **attributes):
    nodes = [
        *pair("x", "a"),
        helper.make_node("DequantizeLinear", ["w_q", "w_s"], ["w"], axis=0, name="w_DQ"),
        helper.make_node("Conv", ["a", "w", "b"] if bias else ["a", "w"], ["y"], name="conv", **attributes),
    ]
    kernel = attributes.get("kernel_shape", [1, 1])
    weights = STEPS | coded([8, 4 // attributes.get("group", 1), *kernel], 0) | ({"b": np.linspace(-1, 1, 8, dtype=np.float32)} if bias else {})
    return model(nodes, {"x": PIXELS, "y": None}, weights)


def product(*, gemm, transposed=False):
    op = helper.make_node("Gemm", ["a", "w", "b"], ["y"], name="product", transB=int(transposed))
    plain = [helper.make_node("MatMul", ["a", "w"], ["m"], name="product"), helper.make_node("Add", ["b", "m"], ["y"], name="add")]
    channels = 0 if transposed else 1
    nodes = [*pair("x", "a"), helper.make_node("DequantizeLinear", ["w_q", "w_s"], ["w"], axis=channels, name="w_DQ"), *([op] if gemm else plain)]
    return model(nodes, {"x": ROWS, "y": None}, STEPS | coded([8, 4] if transposed else [4, 8], channels) | {"b": np.linspace(-1, 1, 8, dtype=np.float32)})


MOVED = {
    "pointwise": convolution,
    "no bias": lambda: convolution(bias=False),
    "groups of a kernel that pads nothing": lambda: convolution(kernel_shape=[3, 3], group=2),
    "auto_pad that pads nothing": lambda: convolution(kernel_shape=[3, 3], auto_pad="VALID"),
    "gemm": lambda: product(gemm=True),
    "transposed gemm": lambda: product(gemm=True, transposed=True),
    "product and sum": lambda: product(gemm=False),
}


def run(graph, seed=0):
    shape = [d if isinstance(d, int) else d.value for d in graph.graph.inputs[0].shape]
    x = np.random.default_rng(seed).uniform(-1.5, 2.4, shape).astype(np.float32)
    return ReferenceEvaluator(ir.to_proto(graph)).run(None, {"x": x})


def read_zero_points(graph, name):
    """Zero point of what the node `name` reads on its left; None when it has none."""
    maker = next(n for n in graph.graph if n.name == name).inputs[0].producer()
    assert maker.op_type == "DequantizeLinear"
    return None if len(maker.inputs) < 3 else int(maker.inputs[2].const_value.numpy())


@pytest.mark.parametrize("make", MOVED.values(), ids=MOVED.keys())
def test_a_layer_without_padding_gives_the_same_without_a_zero_point(make):
    graph = make()
    layer = next(n.name for n in graph.graph if n.op_type in {"Conv", "Gemm", "MatMul"})
    before = run(graph)
    assert move_zero_points(graph) == 1
    assert read_zero_points(graph, layer) is None
    # Sums of at most 18 terms below 12 in FP32: half a unit in the last place of each.
    np.testing.assert_allclose(run(graph)[0], before[0], rtol=0, atol=18 * 12 * 2**-24 * 4)
    assert move_zero_points(graph) == 0


def test_the_bias_takes_scale_times_zero_point_times_the_sum_of_the_weights():
    graph = convolution()
    codes, steps = coded([8, 4, 1, 1], 0).values()
    move_zero_points(graph)
    bias = next(n for n in graph.graph if n.name == "conv").inputs[2].const_value.numpy()
    expected = np.linspace(-1, 1, 8, dtype=np.float32) - 100 / 64 * (codes[:, :, 0, 0].astype(np.float64) * steps[:, None]).sum(axis=1)
    np.testing.assert_allclose(bias, expected, rtol=2**-23)


@pytest.mark.parametrize(
    ("reason", "make"),
    [
        ("padding holds 0, not the code of 0", lambda: convolution(kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
        ("padding by name", lambda: convolution(kernel_shape=[3, 3], auto_pad="SAME_UPPER")),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_padded_convolution_keeps_its_zero_point(reason, make):
    graph = make()
    before = ir.to_proto(graph).SerializeToString()
    assert move_zero_points(graph) == 0, reason
    assert ir.to_proto(graph).SerializeToString() == before


def test_other_readers_of_the_codes_keep_the_zero_point():
    nodes = [
        *pair("x", "a"),
        helper.make_node("DequantizeLinear", ["w_q", "w_s"], ["w"], axis=0, name="w_DQ"),
        helper.make_node("Conv", ["a", "w"], ["c"], name="conv"),
        helper.make_node("Conv", ["a", "w"], ["d"], name="another"),
        helper.make_node("Add", ["c", "d"], ["y"], name="sum"),
        helper.make_node("Relu", ["a"], ["z"], name="relu"),
    ]
    graph = model(nodes, {"x": PIXELS, "y": None, "z": None}, STEPS | coded([8, 4, 1, 1], 0))
    before = run(graph)
    assert move_zero_points(graph) == 2
    assert read_zero_points(graph, "relu") == 100
    assert sum(n.op_type == "DequantizeLinear" for n in graph.graph) == 3  # of the weight, with zero point, without
    for found, expected in zip(run(graph), before, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_product_whose_sum_others_read_keeps_its_zero_point():
    nodes = [
        *pair("x", "a"),
        helper.make_node("DequantizeLinear", ["w_q", "w_s"], ["w"], axis=1, name="w_DQ"),
        helper.make_node("MatMul", ["a", "w"], ["m"], name="product"),
        helper.make_node("Add", ["m", "b"], ["y"], name="add"),
        helper.make_node("Relu", ["m"], ["z"], name="relu"),
    ]
    graph = model(nodes, {"x": ROWS, "y": None, "z": None}, STEPS | coded([4, 8], 1) | {"b": np.zeros(8, np.float32)})
    assert move_zero_points(graph) == 0
