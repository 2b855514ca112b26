import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.targets.nvidia.engine_host.kernels import Product, kernel_of
from quant.targets.nvidia.engine_host.layers import EngineLayer
from quant.targets.nvidia.products import products_of

WEIGHTED = Product("mm", weighted=True, dequantizers=frozenset({"x_dq", "w_dq"}))
ACTIVATIONS = Product("qk", weighted=False, dequantizers=frozenset({"q_dq", "k_dq"}))


def layer(kind, inputs, constants=(), nodes=("mm",), name="layer", *, out="Float"):
    return EngineLayer(name, kind, tuple(inputs), tuple(constants), (out,), tuple(nodes))


# What TensorRT-RTX 1.7.1 lists for each of these cases, shortened.
@pytest.mark.parametrize(
    ("product", "found", "kernel", "runs"),
    [
        (WEIGHTED, layer("gemm", ["Int8"], ["Int8", "Float"]), "gemm", "int8"),
        (WEIGHTED, layer("gemm", ["Half"], ["Half", "Float"]), "gemm", "fp16"),
        (WEIGHTED, layer("gemm", ["Float"], ["Float"]), "gemm", "fp32"),
        (WEIGHTED, layer("runtime_fusion", ["Int8"], ["Float", "Int8"]), "runtime_fusion", "fp32"),
        (WEIGHTED, layer("runtime_fusion", ["Int8"], ["Float", "Int8"], out="Half"), "runtime_fusion", "fp16"),
        (WEIGHTED, layer("gemm", ["Float"], ["Float"], out="Half"), "gemm", "fp32"),
        (WEIGHTED, layer("runtime_fusion", ["Half"], ["Int8", "Float"]), "runtime_fusion", "fp16"),
        (WEIGHTED, layer("correlation", ["Half", "Half"], ["Float", "Half"]), "correlation", "fp16"),
        (WEIGHTED, layer("correlation", ["Int8", "Half"], ["Int8", "Float"]), "correlation", "int8"),
        (ACTIVATIONS, layer("gemm", ["Int8", "Int8"], ["Float"], ["qk"]), "gemm", "int8"),
        (ACTIVATIONS, layer("gemm", ["Int8", "Half"], ["Float"], ["qk"]), "gemm", "fp16"),
        (ACTIVATIONS, layer("kgen", ["Int8"] * 3, [], ["qk", "q_dq", "k_dq", "softmax"], "_gemm_mha_v2_1"), "kgen gemm_mha", "int8"),
        (ACTIVATIONS, layer("kgen", ["Half"] * 3, [], ["qk", "softmax"], "_gemm_mha_v2_1"), "kgen gemm_mha", "fp16"),
        (ACTIVATIONS, layer("kgen", ["Int8", "Half"], [], ["qk", "q_dq"], "_gemm_mha_v2_1"), "kgen gemm_mha", "fp16"),
        (WEIGHTED, layer("kgen", ["Int8"], ["Half"], ["mm", "x_dq", "w_dq"], "__myl_MulSum_1"), "kgen", "fp16"),
        (WEIGHTED, layer("gemm", ["FP8"], ["FP8", "Float", "Float"], out="Half"), "gemm", "fp8"),
        (WEIGHTED, layer("correlation", ["FP8"], ["FP8", "Float", "Float"]), "correlation", "fp8"),
        (WEIGHTED, layer("runtime_fusion", ["Half"], ["Half", "FP8"], ["w_dq", "mm"], out="Half"), "runtime_fusion", "fp16"),
        (WEIGHTED, layer("runtime_fusion", ["FP8"], ["Half"], ["mm", "x_dq"], out="Half"), "runtime_fusion", "fp16"),
        (ACTIVATIONS, layer("gemm", ["FP8", "FP8"], ["Float", "Float"], ["qk"], out="Half"), "gemm", "fp8"),
        (ACTIVATIONS, layer("runtime_fusion", ["FP8", "Half"], [], ["qk", "k_dq"], out="Half"), "runtime_fusion", "fp16"),
        (ACTIVATIONS, layer("kgen", ["FP8"] * 3, [], ["qk", "q_dq", "k_dq", "softmax"], "_gemm_mha_v2_1", out="Half"), "kgen gemm_mha", "fp8"),
        (WEIGHTED, layer("runtime_fusion", ["Half"], ["Int4", "Half"], ["w_dq", "mm"], out="Half"), "runtime_fusion", "int4"),
        (WEIGHTED, layer("gemm", ["Half", "Half"], ["Float", "Float"], out="Half"), "gemm", "fp16"),
    ],
)
def test_the_format_is_that_of_the_kernel_that_multiplies(product, found, kernel, runs):
    assert kernel_of([layer("kgen", ["Float"], nodes=["other"]), found], product) == (kernel, runs)


def test_a_kernel_that_only_scales_the_result_is_not_taken_for_the_product():
    after = layer("kgen", ["Float"], ["Float"])
    assert kernel_of([after, layer("gemm", ["Int8"], ["Int8"]), after], WEIGHTED) == ("gemm", "int8")


def test_one_part_in_floats_is_enough_to_disagree():
    parts = [layer("gemm", ["Int8"], ["Int8"]), layer("gemm", ["Half"], ["Half"])]
    assert kernel_of(parts, WEIGHTED) == ("gemm", "fp16")


def test_a_kernel_that_expands_four_bit_weights_in_advance_is_not_the_product():
    expands = layer("kgen", [], ["Half", "Int4"], ["w_dq"], "__myl_CastMulCast_0", out="Half")
    assert kernel_of([expands, layer("gemm", ["Half", "Half"], out="Half")], WEIGHTED) == ("gemm", "fp16")


def test_codes_of_another_layer_in_the_same_kernel_say_nothing_of_this_one():
    both = layer("kgen", ["Int64"], ["Half", "Int4"], ["codes_dq", "codes", "floats"], out="Half")
    codes, floats = (Product(name, weighted=True, dequantizers=frozenset(dq)) for name, dq in (("codes", {"codes_dq"}), ("floats", ())))
    assert (kernel_of([both], codes), kernel_of([both], floats)) == (("kgen", "int4"), ("kgen", "fp16"))


def test_weights_are_found_behind_a_transposition():
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"], name="w_dq"), helper.make_node("Transpose", ["d"], ["t"], name="turn")]
    nodes.append(helper.make_node("MatMul", ["x", "t"], ["y"], name="mm"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    constants = [numpy_helper.from_array(np.ones((4, 4), np.int8), "w"), numpy_helper.from_array(np.float32(1), "s")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    assert products_of(ir.from_proto(helper.make_model(graph)))["mm"] == Product("mm", weighted=True, dequantizers=frozenset({"w_dq"}))


def test_a_product_that_no_kernel_names_is_unknown():
    assert kernel_of([layer("gemm", ["Int8"], ["Int8"], ["other"])], WEIGHTED) == ("(not found)", "unknown")
