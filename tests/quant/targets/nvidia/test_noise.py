"""What two right engines may differ by, measured; held to engines that know nothing of one another."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from quant.graph.model import read_model, write_model
from quant.targets.nvidia.engine_host.comparing import compare
from quant.targets.nvidia.noise import add_noise, longest_sum, reference, tolerances

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def node(op, inputs, outputs, name, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), name, **attributes)


def model(nodes, inputs, outputs, weights=None, dtype=FLOAT):
    """A graph whose inputs and outputs have one type (or outputs that of their own: `(type, shape)`)."""
    ends = [[helper.make_tensor_value_info(n, *(s if isinstance(s, tuple) else (dtype, s))) for n, s in part.items()] for part in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()])
    made = onnx.shape_inference.infer_shapes(helper.make_model(graph, ir_version=11, opset_imports=[helper.make_opsetid("", 23)]))
    onnx.checker.check_model(made, full_check=True)
    return made


def quantized(*, body=np.float32, factor=1.0):
    """`y = relu(x @ w)` with INT8 codes for both operands, the rest in `body`; `factor` is how wrong its weights' scale is."""
    to = int(ir.DataType.from_numpy(np.dtype(body)))
    weights = {"w": np.clip(np.rint(draw(64, 32) * 40), -127, 127).astype(np.int8), "sw": np.full(32, factor / 40, np.float32)}
    weights |= {"sx": np.float32(0.03), "zx": np.int8(0), "zw": np.zeros(32, np.int8)}
    nodes = [node("Cast", "x", "xb", "down", to=to), node("QuantizeLinear", "xb sx zx", "xq", "quantize")]
    nodes += [node("DequantizeLinear", "xq sx zx", "xd", "x_dq", output_dtype=to), node("DequantizeLinear", "w sw zw", "wd", "w_dq", axis=1, output_dtype=to)]
    nodes += [node("MatMul", "xd wd", "m", "mm"), node("Relu", "m", "r", "relu"), node("Cast", "r", "y", "up", to=1)]
    return model(nodes, {"x": ["N", 64]}, {"y": ["N", 32]}, {name: np.asarray(array) for name, array in weights.items()})


def written(proto, folder):
    return write_model(ir.from_proto(proto), folder)


def feeds():
    return [{"x": draw(rows, 64, seed=rows) * 3} for rows in (1, 4, 8)]


@pytest.mark.parametrize("body", [np.float32, np.float16])
def test_another_engine_is_within_the_tolerance_and_a_wrong_one_is_not(tmp_path, body):
    path = written(quantized(body=body), tmp_path / "right")
    samples = reference(path, feeds())
    allowed = tolerances(path, samples, tf32=False)
    other = ReferenceEvaluator(str(path))
    (row,) = compare(lambda feed: {"y": other.run(None, dict(feed))[0]}, samples, allowed)
    assert row.agrees
    wrong = ReferenceEvaluator(str(written(quantized(body=body, factor=1.02), tmp_path / "wrong")))
    (row,) = compare(lambda feed: {"y": wrong.run(None, dict(feed))[0]}, samples, allowed)
    assert not row.agrees


def test_a_narrower_body_may_differ_by_more(tmp_path):
    found = {}
    for name, body, tf32 in (("fp32", np.float32, False), ("tf32", np.float32, True), ("fp16", np.float16, False)):
        path = written(quantized(body=body), tmp_path / name)
        found[name] = tolerances(path, reference(path, feeds()), tf32=tf32)["y"].rms
    assert 0 < found["fp32"] < found["fp16"]
    assert found["fp32"] < found["tf32"]


def test_the_same_graph_and_data_have_the_same_tolerance(tmp_path):
    path = written(quantized(body=np.float16), tmp_path)
    assert tolerances(path, reference(path, feeds()), tf32=False) == tolerances(path, reference(path, feeds()), tf32=False)


def test_each_float_is_off_by_no_more_than_its_rounding():
    """`y = x + x` in FP16: a factor for the input and one for the output, of 1 + 2**-10 at most, and the multiplications' own rounding."""
    proto = model([node("Add", "x x", "y", "add")], {"x": [64]}, {"y": [64]}, dtype=HALF)
    x = np.linspace(0.5, 1, 64).astype(np.float16)
    apart = []
    for seed in range(4):
        noisy = ir.from_proto(proto)
        add_noise(noisy, seed=seed)
        (y,) = ReferenceEvaluator(ir.to_proto(noisy)).run(["y"], {"x": x})
        apart.append(np.abs(y.astype(np.float64) / (2 * x.astype(np.float64)) - 1))
    assert 2**-11 <= np.max(apart) <= ((1 + 2**-10) * (1 + 2**-11)) ** 2 - 1
    assert len({tuple(row) for row in apart}) == 4


def test_values_that_nobody_rounds_get_no_noise():
    nodes = [node("Transpose", "x", "t", "turn", perm=[1, 0]), node("Shape", "t", "s", "shape"), node("Relu", "t", "y", "relu")]
    noisy = ir.from_proto(model(nodes, {"x": [2, 3]}, {"y": [3, 2], "s": (INT64, [2])}))
    add_noise(noisy, seed=0)
    assert [n.op_type for n in noisy.graph].count("Mul") == 1  # of the input


def test_outputs_that_are_no_floats_may_differ_in_as_many_entries_as_noise_changes(tmp_path):
    nodes = [node("MatMul", "x w", "m", "mm"), node("ArgMax", "m", "y", "best", axis=1, keepdims=0)]
    path = written(model(nodes, {"x": ["N", 8]}, {"y": (INT64, ["N"])}, {"w": draw(8, 5)}), tmp_path)
    samples = reference(path, [{"x": draw(64, 8)}])
    allowed = tolerances(path, samples, tf32=False)["y"]
    assert 0 <= allowed.rms == allowed.largest < 0.1


@pytest.mark.parametrize(
    ("op", "shape", "attributes", "terms"),
    [("Conv", (8, 4, 3, 3), {}, 36), ("ConvTranspose", (8, 4, 3, 3), {}, 72), ("MatMul", (64, 32), {}, 64), ("Gemm", (32, 64), {"transB": 1}, 64)],
)
def test_the_longest_sum_is_that_of_a_filter_or_a_row(op, shape, attributes, terms):
    rank = len(shape)
    x = [1, 4, 9, 9] if op == "Conv" else [1, 8, 9, 9] if op == "ConvTranspose" else [2, 64]
    proto = model([node(op, "x w", "y", "layer", **attributes)], {"x": x}, {"y": [None] * rank}, {"w": draw(*shape)})
    assert longest_sum(ir.from_proto(proto).graph) == terms


def test_the_graph_that_is_read_is_left_as_it_is(tmp_path):
    path = written(quantized(), tmp_path)
    before = path.read_bytes()
    tolerances(path, reference(path, feeds()), tf32=False)
    assert path.read_bytes() == before
    assert len(list(read_model(path).graph)) == 7
