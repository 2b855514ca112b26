"""ONNX Runtime: the audit shows where the engine silently computes in float what the graph has in Q/DQ."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quant.core.documents import LayerChoice, PrecisionPlan
from quant.targets import TARGETS

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)


def audited(proto, tmp_path, **layers):
    """Layer -> (format, kernel) for a graph in Q/DQ form whose layers (name=output) are all planned in INT8."""
    target = TARGETS.make("onnxruntime")
    artifact = target.export(ir.from_proto(proto), tmp_path, scheme="int8")
    plan = PrecisionPlan(scheme="int8", base="int8", layers=tuple(LayerChoice(layer=name, op="?", format="int8", reason="test") for name in layers))
    return {row.layer: (row.runs, row.kernel, row.agrees) for row in target.audit(artifact, tmp_path, plan, layers).rows}


def conv_in_pairs(*behind, outputs):
    """x -> Q -> DQ -> Conv (weight in codes) -> `behind`."""
    weights = {"s": np.float32(0.03), "z": np.uint8(128), "layer_weight_quantized": np.ones((4, 3, 3, 3), np.int8), "ws": np.float32(0.01), "wz": np.int8(0)}
    nodes = [
        zoo.node("QuantizeLinear", "x s z", "xq"),
        zoo.node("DequantizeLinear", "xq s z", "xd"),
        zoo.node("DequantizeLinear", "layer_weight_quantized ws wz", "wd"),
        zoo.node("Conv", "xd wd", "c", "layer"),
    ]
    return zoo.model([*nodes, *behind], {"x": ["N", 3, 6, 6]}, outputs, weights)


def test_a_conv_with_codes_on_both_sides_is_seen_in_integers(tmp_path):
    proto = conv_in_pairs(zoo.node("QuantizeLinear", "c s z", "cq"), zoo.node("DequantizeLinear", "cq s z", "y"), outputs={"y": None})
    assert audited(proto, tmp_path, layer="c") == {"layer": ("int8", "QLinearConv", True)}


def test_a_conv_whose_output_is_read_in_float_is_seen_in_float(tmp_path):
    runs, _kernel, agrees = audited(conv_in_pairs(zoo.node("Exp", "c", "y"), outputs={"y": None}), tmp_path, layer="c")["layer"]
    assert (runs, agrees) == ("fp32", False)


@pytest.mark.parametrize("bias", [True, False])
def test_a_gemm_with_a_float_bias_is_seen_in_float(tmp_path, bias):
    weights = {"s": np.float32(0.03), "z": np.uint8(128), "layer_weight_quantized": np.ones((8, 4), np.int8), "ws": np.float32(0.01), "wz": np.int8(0)}
    nodes = [
        zoo.node("QuantizeLinear", "x s z", "xq"),
        zoo.node("DequantizeLinear", "xq s z", "xd"),
        zoo.node("DequantizeLinear", "layer_weight_quantized ws wz", "wd"),
        zoo.node("Gemm", "xd wd b" if bias else "xd wd", "y", "layer"),
    ]
    proto = zoo.model(nodes, {"x": ["N", 8]}, {"y": None}, weights | ({"b": np.ones(4, np.float32)} if bias else {}))
    runs, kernel, agrees = audited(proto, tmp_path, layer="y")["layer"]
    assert (runs, kernel, agrees) == (("fp32", "Gemm", False) if bias else ("int8", "QGemm", True))


def test_a_layer_that_is_not_there_is_unknown_and_no_neighbour_is_taken_for_it(tmp_path):
    proto = zoo.model([zoo.node("MatMul", "x w", "y", "block/MatMul")], {"x": ["N", 8]}, {"y": None}, {"w": zoo.draw(8, 8)})
    assert audited(proto, tmp_path, block="nothing") == {"block": ("unknown", "(not found)", False)}


def test_a_float_gemm_that_an_activation_melts_into_is_found(tmp_path):
    weights = {"w": zoo.draw(8, 4), "b": zoo.draw(4)}
    proto = zoo.model([zoo.node("Gemm", "x w b", "g", "layer"), zoo.node("Relu", "g", "y", "relu")], {"x": ["N", 8]}, {"y": None}, weights)
    assert audited(proto, tmp_path, layer="g") == {"layer": ("fp32", "FusedGemm", False)}


def test_large_weights_lie_beside_the_graph(tmp_path, monkeypatch):
    import quant.targets.onnxruntime as module

    monkeypatch.setattr(module, "_SINGLE_FILE_BELOW_BYTES", 1)
    proto = zoo.model([zoo.node("MatMul", "x w", "y")], {"x": ["N", 64]}, {"y": None}, {"w": zoo.draw(64, 64)})
    target = TARGETS.make("onnxruntime")
    artifact = target.export(ir.from_proto(proto), tmp_path, scheme="fp32")
    assert sorted(artifact.files) == ["model.onnx", "model.onnx.data"]
    feed = zoo.feed(proto, 0)
    np.testing.assert_allclose(target.session(artifact, tmp_path, threads=1).run(feed)["y"], feed["x"] @ zoo.draw(64, 64), rtol=1e-4, atol=1e-4)
    assert audited(proto, tmp_path, matmul_y="y")["matmul_y"][0] == "fp32"


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_threads(tmp_path, threads):
    proto = zoo.ZOO["residual with relu"]()
    target = TARGETS.make("onnxruntime")
    artifact = target.export(ir.from_proto(proto), tmp_path, scheme="fp32")
    feed = zoo.feed(proto, 0)
    one = target.session(artifact, tmp_path, threads=1).run(feed)
    found = target.session(artifact, tmp_path, threads=threads).run(feed)
    assert {k: v.tobytes() for k, v in one.items()} == {k: v.tobytes() for k, v in found.items()}
