from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from quant.graph.importing.batch_norm import fold_batch_norms

node = helper.make_node
EPSILON = 1e-3


@dataclass(frozen=True, kw_only=True)
class Norm:
    """Parameters of a batch norm, and its map in float64."""

    gamma: np.ndarray
    beta: np.ndarray
    mean: np.ndarray
    variance: np.ndarray

    @property
    def scale(self):
        return self.gamma.astype(np.float64) / np.sqrt(self.variance.astype(np.float64) + EPSILON)

    @property
    def shift(self):
        return self.beta.astype(np.float64) - self.mean.astype(np.float64) * self.scale

    @property
    def weights(self):
        return {"gamma": self.gamma, "beta": self.beta, "mean": self.mean, "var": self.variance}


def _norm(rng, channels):
    gamma, beta, mean = (rng.normal(size=channels).astype("float32") for _ in range(3))
    return Norm(gamma=gamma, beta=beta, mean=mean, variance=rng.uniform(0.2, 3, channels).astype("float32"))


def _bn(source="c", target="y", **attributes):
    return node("BatchNormalization", [source, "gamma", "beta", "mean", "var"], [target], name="bn", **{"epsilon": EPSILON, **attributes})


def _ops(model):
    return [n.op_type for n in model.graph]


@pytest.fixture(name="build")
def _build(build):
    # of operator set 15: up to 14, the reference evaluator takes a batch norm's default momentum for a wish to train
    return lambda *args, **options: build(*args, opset=15, **options)


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_conv_takes_in_its_batch_norm(build, rng, reference, bias, groups):
    norm = _norm(rng, 8)
    weights = {"w": rng.normal(size=(8, 4 // groups, 3, 3)).astype("float32"), "b": rng.normal(size=8).astype("float32")}
    conv = node("Conv", ["x", "w", "b"] if bias else ["x", "w"], ["c"], name="conv", group=groups)
    model = ir.from_proto(build([conv, _bn()], {"x": ["N", 4, 5, 5]}, {"y": ["N", 8, 3, 3]}, {**weights, **norm.weights}))
    x = rng.normal(size=(2, 4, 5, 5)).astype("float32")
    expected = reference(model, {"x": x})[0]
    assert fold_batch_norms(model) == 1
    assert _ops(model) == ["Conv"]
    assert [v.name for v in model.graph.outputs] == ["y"]
    layer = next(iter(model.graph))
    by_hand = weights["w"].astype(np.float64) * norm.scale[:, None, None, None]
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), by_hand.astype("float32"))
    old = weights["b"].astype(np.float64) if bias else 0.0
    np.testing.assert_array_equal(layer.inputs[2].const_value.numpy(), (old * norm.scale + norm.shift).astype("float32"))
    assert layer.inputs[2].name == ("b" if bias else "conv.bias")
    np.testing.assert_allclose(reference(model, {"x": x})[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_conv_takes_in_its_batch_norm(build, rng, groups):
    norm = _norm(rng, 6)
    weights = {"w": rng.normal(size=(4, 6 // groups, 3, 3)).astype("float32")}
    conv = node("ConvTranspose", ["x", "w"], ["c"], name="up", group=groups)
    model = ir.from_proto(build([conv, _bn()], {"x": ["N", 4, 5, 5]}, {"y": None}, {**weights, **norm.weights}))
    before = ir.to_proto(model)
    assert fold_batch_norms(model) == 1
    assert _ops(model) == ["ConvTranspose"]
    _same_in_onnx_runtime(before, model, rng.normal(size=(2, 4, 5, 5)).astype("float32"))


def _same_in_onnx_runtime(before, model, x):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    runs = [
        ort.InferenceSession(p.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0] for p in (before, ir.to_proto(model))
    ]
    np.testing.assert_allclose(runs[1], runs[0], rtol=0, atol=1e-5 * np.abs(runs[0]).max())


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_gemm_takes_in_its_batch_norm_with_alpha_and_beta(build, rng, reference, transposed):
    norm = _norm(rng, 5)
    w = rng.normal(size=(5, 3) if transposed else (3, 5)).astype("float32")
    gemm = node("Gemm", ["x", "w", "b"], ["c"], name="fc", alpha=0.5, beta=2.0, transB=transposed)
    weights = {"w": w, "b": rng.normal(size=5).astype("float32"), **norm.weights}
    model = ir.from_proto(build([gemm, _bn()], {"x": ["N", 3]}, {"y": ["N", 5]}, weights))
    x = rng.normal(size=(4, 3)).astype("float32")
    matrix = (w.T if transposed else w).astype(np.float64)
    by_hand = (0.5 * x.astype(np.float64) @ matrix + 2.0 * weights["b"].astype(np.float64)) * norm.scale + norm.shift
    assert fold_batch_norms(model) == 1
    assert _ops(model) == ["Gemm"]
    np.testing.assert_allclose(reference(model, {"x": x})[0], by_hand, rtol=0, atol=1e-5 * np.abs(by_hand).max())


def test_a_matmul_takes_in_its_batch_norm_which_becomes_a_bias(build, rng, reference):
    norm = _norm(rng, 5)
    w = rng.normal(size=(3, 5)).astype("float32")
    model = ir.from_proto(build([node("MatMul", ["x", "w"], ["c"], name="fc"), _bn()], {"x": ["N", 3]}, {"y": ["N", 5]}, {"w": w, **norm.weights}))
    x = rng.normal(size=(4, 3)).astype("float32")
    by_hand = x.astype(np.float64) @ w.astype(np.float64) * norm.scale + norm.shift
    assert fold_batch_norms(model) == 1
    assert [(n.op_type, n.name) for n in model.graph] == [("MatMul", "fc"), ("Add", "bn")]
    assert model.graph.outputs[0].name == "y"
    np.testing.assert_allclose(reference(model, {"x": x})[0], by_hand, rtol=0, atol=1e-5 * np.abs(by_hand).max())


@pytest.mark.parametrize("first", [False, True], ids=["bias second", "bias first"])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (1,)], ids=str)
def test_a_matmul_with_a_bias_takes_in_its_batch_norm(build, rng, reference, first, shape):
    norm = _norm(rng, 5)
    weights = {"w": rng.normal(size=(3, 5)).astype("float32"), "b": rng.normal(size=shape).astype("float32")}
    nodes = [node("MatMul", ["x", "w"], ["m"], name="fc"), node("Add", ["b", "m"] if first else ["m", "b"], ["c"], name="add"), _bn()]
    model = ir.from_proto(build(nodes, {"x": ["N", 3]}, {"y": ["N", 5]}, {**weights, **norm.weights}))
    x = rng.normal(size=(4, 3)).astype("float32")
    by_hand = (x.astype(np.float64) @ weights["w"].astype(np.float64) + weights["b"].reshape(-1)) * norm.scale + norm.shift
    assert fold_batch_norms(model) == 1
    assert _ops(model) == ["MatMul", "Add"]
    np.testing.assert_allclose(reference(model, {"x": x})[0], by_hand, rtol=0, atol=1e-5 * np.abs(by_hand).max())


def test_a_matmul_of_three_axes_keeps_its_batch_norm_which_scales_other_channels(build, rng):
    norm = _norm(rng, 4)
    weights = {"w": rng.normal(size=(3, 4)).astype("float32"), **norm.weights}
    model = ir.from_proto(build([node("MatMul", ["x", "w"], ["c"]), _bn()], {"x": ["N", 4, 3]}, {"y": ["N", 4, 4]}, weights))
    assert fold_batch_norms(model) == 0


def test_a_weight_that_two_layers_share_is_copied_not_spoiled(build, rng, reference):
    norm = _norm(rng, 4)
    w = rng.normal(size=(4, 4, 1, 1)).astype("float32")
    nodes = [node("Conv", ["x", "w"], ["a"], name="first"), node("Conv", ["a", "w"], ["c"], name="second"), _bn()]
    model = ir.from_proto(build(nodes, {"x": ["N", 4, 2, 2]}, {"y": ["N", 4, 2, 2]}, {"w": w, **norm.weights}))
    x = rng.normal(size=(1, 4, 2, 2)).astype("float32")
    expected = reference(model, {"x": x})[0]
    assert fold_batch_norms(model) == 1
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), w)
    assert list(model.graph)[1].inputs[1].name == "second.weight"
    np.testing.assert_allclose(reference(model, {"x": x})[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_layer_that_others_read_keeps_its_batch_norm(build, rng):
    norm = _norm(rng, 4)
    weights = {"w": rng.normal(size=(4, 4, 1, 1)).astype("float32"), **norm.weights}
    nodes = [node("Conv", ["x", "w"], ["c"]), _bn(target="n"), node("Add", ["c", "n"], ["y"])]
    assert fold_batch_norms(ir.from_proto(build(nodes, {"x": [1, 4, 2, 2]}, {"y": None}, weights))) == 0
    nodes = [node("Conv", ["x", "w"], ["c"]), _bn()]
    assert fold_batch_norms(ir.from_proto(build(nodes, {"x": [1, 4, 2, 2]}, {"y": None, "c": None}, weights))) == 0


def test_a_batch_norm_with_computed_parameters_or_no_layer_before_it_stays(build, rng):
    norm = _norm(rng, 4)
    weights = {"w": rng.normal(size=(4, 4, 1, 1)).astype("float32"), **norm.weights}
    computed = [node("Conv", ["x", "w"], ["c"]), node("Abs", ["v"], ["var2"]), node("BatchNormalization", ["c", "gamma", "beta", "mean", "var2"], ["y"])]
    assert fold_batch_norms(ir.from_proto(build(computed, {"x": [1, 4, 2, 2], "v": [4]}, {"y": None}, weights))) == 0
    alone = [node("Relu", ["x"], ["c"]), _bn()]
    assert fold_batch_norms(ir.from_proto(build(alone, {"x": [1, 4, 2, 2]}, {"y": None}, weights))) == 0


def test_two_layers_fold_their_own_copies_of_a_shared_batch_norm(build, rng, reference):
    norm = _norm(rng, 4)
    weights = {"w": rng.normal(size=(4, 4, 1, 1)).astype("float32"), "v": rng.normal(size=(4, 4, 1, 1)).astype("float32"), **norm.weights}
    second = node("BatchNormalization", ["d", "gamma", "beta", "mean", "var"], ["y"], name="bn2", epsilon=EPSILON)
    nodes = [node("Conv", ["x", "w"], ["c"], name="a"), _bn(target="n"), node("Conv", ["n", "v"], ["d"], name="b"), second]
    model = ir.from_proto(build(nodes, {"x": [1, 4, 2, 2]}, {"y": None}, weights))
    x = rng.normal(size=(1, 4, 2, 2)).astype("float32")
    expected = reference(model, {"x": x})[0]
    assert fold_batch_norms(model) == 2
    np.testing.assert_allclose(reference(model, {"x": x})[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())
