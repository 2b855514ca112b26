"""Dynamic INT8 against the arithmetic of DynamicQuantizeLinear, written out in NumPy."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quant.graph.runtime import Runtime


def dynamic_product(x, w, bias=0.0):
    """What ONNX defines: uint8 codes of x from its own range (with 0 in it), int8 codes of w per column, and their integer product."""
    low, high = min(0.0, x.min()), max(0.0, x.max())
    scale = np.float32((high - low) / np.float32(255))
    zero = np.clip(np.rint(-low / scale), 0, 255)
    codes = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64)
    steps = (np.abs(w).max(axis=0) / 127).astype(np.float32)
    weights = np.rint(w / steps).astype(np.int64)
    return ((codes - int(zero)) @ weights) * (scale * steps) + bias


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (6,)])
def test_a_product_is_what_it_is_by_hand(zoo, quantize, shape, optimize):
    w = zoo.draw(6, 3)
    model, _ = quantize(zoo.model([zoo.node("MatMul", "x w", "y")], {"x": list(shape)}, {"y": None}, {"w": w}), "int8-dynamic", [])
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(Runtime(model, optimize=optimize).run({"x": x})["y"], dynamic_product(x, w), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("bias", [np.float32([1, -2, 3]), np.float32([[1, -2, 3]]), np.float32(0.5), np.float32([[1], [2], [3], [4], [5]])])
def test_a_gemm_has_its_factors_worked_in(zoo, quantize, bias, optimize):
    w = zoo.draw(3, 6)
    proto = zoo.model([zoo.node("Gemm", "x w b", "y", alpha=-0.5, beta=2.0, transB=1)], {"x": [5, 6]}, {"y": None}, {"w": w, "b": bias})
    model, _ = quantize(proto, "int8-dynamic", [])
    x = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    np.testing.assert_allclose(Runtime(model, optimize=optimize).run({"x": x})["y"], dynamic_product(x, -0.5 * w.T, 2 * bias), rtol=1e-5, atol=1e-6)


def test_an_input_that_layers_share_is_quantized_once(zoo, quantize):
    model, _ = quantize(zoo.ZOO["attention"](), "int8-dynamic", [])
    assert [node.op_type for node in model.graph].count("DynamicQuantizeLinear") == 2  # x, and what the last product reads


def test_a_computed_bias_that_is_scaled_is_left_in_float_with_the_reason(zoo, quantize):
    _, plan = quantize(zoo.ZOO["gemm with a computed and scaled bias"](), "int8-dynamic", [])
    assert [(c.format, c.reason) for c in plan.layers] == [("fp32", "its bias is computed, and scaled (beta)")]


@pytest.mark.parametrize(
    ("name", "kernel"), [("matmul of rank 3", "DynamicQuantizeMatMul"), ("gemm transB", "DynamicQuantizeMatMul"), ("attention", "MatMulIntegerToFloat")]
)
def test_the_engine_fuses_it(zoo, quantize, tmp_path, name, kernel):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 4
    model = ir.to_proto(quantize(zoo.ZOO[name](), "int8-dynamic", [])[0])
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert kernel in {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}
