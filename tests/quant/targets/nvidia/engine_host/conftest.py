"""The fake GPU, and a small model, for all tests of this folder."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper


def load_fake_gpu():
    spec = importlib.util.spec_from_file_location("fake_gpu", Path(__file__).with_name("fake_gpu.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FAKE = load_fake_gpu()


@pytest.fixture
def gpu():
    return FAKE


@pytest.fixture
def fp16_gemm():
    """A Gemm in FP16 between FP32 ends, and two inputs."""
    random = np.random.default_rng(0)
    weights = [numpy_helper.from_array(random.normal(size=shape).astype(np.float16), name) for name, shape in (("w", (32, 64)), ("b", (32,)))]
    nodes = [helper.make_node("Cast", ["x"], ["xh"], "down", to=TensorProto.FLOAT16), helper.make_node("Gemm", ["xh", "w", "b"], ["yh"], "gemm", transB=1)]
    nodes.append(helper.make_node("Cast", ["yh"], ["y"], "up", to=TensorProto.FLOAT))
    half = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in (("xh", [4, 64]), ("yh", [4, 32]))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [4, 64]), ("y", [4, 32]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights, value_info=half)
    model = ir.from_proto(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]))
    return model, [{"x": random.normal(size=(4, 64)).astype(np.float32)} for _ in range(2)]
