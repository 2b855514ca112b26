"""A graph as TensorRT wants it gives no findings, and everything that other tools write can be read."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper


def test_symmetric_convolution_product_and_float_body_give_no_findings(drawing, lint, rtx, tmp_path):
    g = drawing()
    g.input("x", [8, 32, 16, 16], "f16")
    y = g.node("Relu", [g.node("Conv", [g.pair("x"), g.coded((32, 32, 3, 3), 0), g.weight(np.ones(32), "f16")], pads=[1, 1, 1, 1])])
    y = g.node("Flatten", [g.pair(g.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2]))])
    y = g.node("MatMul", [y, g.coded((2048, 64), 1)])
    y = g.node("LayerNormalization", [g.node("Gelu", [y]), g.weight(np.ones(64), "f16"), g.weight(np.zeros(64), "f16")])
    g.output(g.node("Cast", [y], to=1), [8, 64], "f32")
    assert lint(g, capability="8.9").findings == ()
    said = rtx.ask(tmp_path / "model.onnx")
    assert said["accepted"]
    assert sum("Int8" in line and ("correlation" in line or "gemm" in line) for line in said["layers"]) == 2


def test_fused_fp8_attention_and_int4_blocks_give_no_findings(drawing, lint):
    g = drawing()
    q, k, v = (g.input(name, [1, 4, 128, 64]) for name in "qkv")
    scores = g.node("MatMul", [g.pair(q, dtype="f8"), g.pair(g.node("Transpose", [k], perm=[0, 1, 3, 2]), dtype="f8")])
    g.output(g.node("MatMul", [g.pair(g.node("Softmax", [scores], axis=-1), 1 / 448, dtype="f8"), g.pair(v, dtype="f8")]), [1, 4, 128, 64])
    g.input("x", [8, 256])
    weight = g.dequantize(g.random((256, 64), "i4"), np.full((2, 64), 0.01), dtype="i4", scale_dtype="f16", axis=0, block_size=128)
    g.output(g.node("MatMul", ["x", weight]), [8, 64])
    assert lint(g, capability="8.9").findings == ()


def test_one_block_that_is_shorter_than_block_size_means_the_same_to_tensorrt(drawing, lint):
    g = drawing()
    g.input("x", [8, 64])
    weight = g.dequantize(g.random((64, 64), "i4"), np.full((1, 64), 0.01), dtype="i4", scale_dtype="f16", axis=0, block_size=128)
    g.output(g.node("MatMul", ["x", weight]), [8, 64])
    assert [(f.rule, f.detail) for f in lint(g).findings] == [("Q22", "one block of 64 along the whole axis")], "and not Q11b"


def test_of_two_layers_that_are_added_one_may_be_quantized(drawing, lint):
    g = drawing()
    g.input("x", [8, 64])
    sides = [g.node("MatMul", [g.pair("x"), g.coded((64, 64), 1)]) for _ in range(2)]
    both = g.node("Add", [g.pair(sides[0]), sides[1]])
    g.output(g.node("MatMul", [g.pair(both), g.coded((64, 64), 1)]), [8, 64])
    assert lint(g).findings == ()


@pytest.fixture
def net():
    """A small float convolution network, as a file's bytes."""
    random = np.random.default_rng(0)
    weights = {"w": (random.normal(size=(32, 32, 3, 3)) / 9, 1), "b": (random.normal(size=32), 1), "v": (random.normal(size=(32, 16)) / 6, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "v"], ["y"], name="dense"),
    ]
    inputs, outputs = [helper.make_tensor_value_info("x", 1, [4, 32, 8, 8])], [helper.make_tensor_value_info("y", 1, [4, 16])]
    initializers = [numpy_helper.from_array(array.astype(np.float32), name) for name, (array, _) in weights.items()]
    return helper.make_model(helper.make_graph(nodes, "net", inputs, outputs, initializers), opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def _quantize_static(net, folder, activations):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = [{"x": np.random.default_rng(i).normal(size=(4, 32, 8, 8)).astype(np.float32)} for i in range(2)]

        def get_next(self):
            return self.left.pop() if self.left else None

    folder.mkdir()
    onnx.save(net, folder / "net.onnx")
    symmetric = {"ActivationSymmetric": activations == "s8"}
    quantize_static(
        folder / "net.onnx",
        folder / "quantized.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8 if activations == "s8" else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options=symmetric,
    )
    return onnx.load(folder / "quantized.onnx")


@pytest.mark.filterwarnings("ignore")  # what onnxruntime's quantizer warns of is its own
def test_what_onnxruntime_quantizes_by_default_is_asymmetric_with_integer_biases(net, lint, tmp_path, rtx):
    found = {f.rule for f in lint(_quantize_static(net, tmp_path / "ort", "u8")).findings if f.severity == "error"}
    assert found == {"Q01", "Q15"}
    assert not rtx.ask(tmp_path / "model.onnx")["accepted"]


@pytest.mark.filterwarnings("ignore")
def test_what_onnxruntime_quantizes_symmetrically_needs_only_its_biases_mended(net, lint, tmp_path, rtx):
    model = _quantize_static(net, tmp_path / "ort", "s8")
    assert {f.rule for f in lint(model).findings if f.severity == "error"} == {"Q15"}
    assert not rtx.ask(tmp_path / "model.onnx")["accepted"]
    done = lint(model, to=tmp_path / "mended.onnx")
    assert done.mended.places == {"Q15": 1}
    assert done.count("error") == 0
    said = rtx.ask(tmp_path / "mended.onnx")
    assert said["accepted"], said["said"]
    assert any("Int8" in line and "correlation" in line for line in said["layers"])
    x = np.random.default_rng(9).normal(size=(4, 32, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(_run(tmp_path / "model.onnx", x), _run(tmp_path / "mended.onnx", x), rtol=0, atol=1e-6)


def _run(path, x):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(str(path)).run(None, {"x": x})[0]


def test_our_own_artifact_for_onnxruntime_is_refused_for_tensorrt(finished, rtx):
    from quant.lint.check import check

    [artifact] = [path for path in finished.project.output.rglob("*.onnx") if "int8" in str(path) and "dynamic" not in str(path)]
    found = check(artifact)
    assert {f.rule for f in found.findings if f.severity == "error"} == {"Q15"}
    assert "Q02" in {f.rule for f in found.findings if f.severity == "silent"}  # activations without negative values: UINT8 codes from 0
    assert "input has type Int32" in rtx.ask(artifact)["said"]


@pytest.fixture(scope="session")
def node_models(tmp_path_factory):
    """ONNX's own tests of its operators, each a file; they can be collected once in a process."""
    from onnx.backend.test.case.node import collect_testcases

    folder = tmp_path_factory.mktemp("nodes")
    for case in collect_testcases(None):
        onnx.save(case.model, folder / f"{case.name}.onnx")
    return sorted(folder.iterdir())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the tests' own data overflows on purpose
def test_none_of_onnx_s_own_tests_is_a_bug_of_ours_and_what_is_called_an_error_in_them_is_refused(node_models, rtx):
    from quant.lint.check import check

    wrong, refused = [], 0
    for path in node_models:
        errors = [f"{f.rule}: {f.detail}" for f in check(path).findings if f.severity == "error"]
        if errors and rtx.ask(path)["accepted"]:
            wrong.append((path.name, errors))
        refused += bool(errors)
    assert wrong == []
    assert refused > 500
