"""AWQ's factors that go into a layer which is itself written in 4 bits."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.graph.layers import find_layers
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS

WIDTH, INNER = 64, 128


@pytest.fixture
def gated():
    """`down(sigmoid(x G) * (x U))`, where a few channels of the product are far larger than the others."""
    r = np.random.default_rng(2)
    loud = np.where(np.arange(INNER) % 16 == 3, 30.0, 1.0)
    weights = {
        "gate": r.normal(size=(WIDTH, INNER)) / 8,
        "up": r.normal(size=(WIDTH, INNER)) / 8 * loud,
        "down": r.normal(size=(INNER, WIDTH)) / 11,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "gate"], ["g"], name="gate"),
        helper.make_node("Sigmoid", ["g"], ["s"]),
        helper.make_node("MatMul", ["x", "up"], ["u"], name="up"),
        helper.make_node("Mul", ["s", "u"], ["h"]),
        helper.make_node("MatMul", ["h", "down"], ["y"], name="down"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in "xy"]
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    return lambda: ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)), weights


def packed(rows):
    from quant.core.moments import MomentSum

    moments = MomentSum(rows.shape[1])
    moments.add(rows.astype(np.float32))
    return moments.mean()


@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
def test_a_gated_unit_stays_the_function_that_it_was(gated, target):
    make, w = gated
    x = np.random.default_rng(5).normal(size=(256, WIDTH)).astype(np.float32)
    h = (x @ w["up"]) / (1 + np.exp(-(x @ w["gate"])))
    wanted, evidence = h @ w["down"], Evidence(moments={"x": packed(x), "h": packed(h)})
    errors = {}
    for method in ("rtn", "awq"):
        scheme, dialect, model = SCHEMES.make("int4", {"method": method, "block_size": 32}), TARGETS.make(target).dialect, make()
        plan = scheme.apply(model, scheme.plan(model, find_layers(model), dialect), evidence, dialect)
        errors[method] = float(np.square(Runtime(model).run({"x": x})["y"] - wanted).mean() / np.square(wanted).mean())
        if method == "awq":
            assert "folded into the weight of up" in next(choice.reason for choice in plan.layers if choice.layer == "down")
    assert errors["awq"] < errors["rtn"]
