"""Layers in graphs nested in others are left as they are, which is said wherever a model is looked at or planned for."""

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import quant
from quant.cli import app
from quant.errors import PlanError

SAID = "2 layers (Gemm 1, MatMul 1) lie in graphs nested in If, which are left as they are: bring the branch that is used as a graph of its own"
FLOAT = TensorProto.FLOAT


def two_branches(*, product_before):
    """Another product in each branch of an If, and one before it or none."""
    weights = {name: np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32) for seed, name in enumerate("uvw")}

    def branch(op, weight):
        node = helper.make_node(op, ["h", weight], [f"{weight}_out"], name=f"{weight}.{op}")
        return helper.make_graph([node], f"with_{weight}", [], [helper.make_tensor_value_info(f"{weight}_out", FLOAT, ["n", 4])])

    before = helper.make_node("MatMul", ["x", "w"], ["h"], name="before") if product_before else helper.make_node("Relu", ["x"], ["h"], name="before")
    choice = helper.make_node("If", ["which"], ["y"], name="choice", then_branch=branch("MatMul", "u"), else_branch=branch("Gemm", "v"))
    sums = helper.make_node("ReduceSum", ["x"], ["sum"], name="sum", keepdims=0)
    which = helper.make_node("Greater", ["sum", "zero"], ["which"], name="compared")
    tensors = [numpy_helper.from_array(a, n) for n, a in weights.items() if product_before or n != "w"] + [numpy_helper.from_array(np.float32(0), "zero")]
    ends = [[helper.make_tensor_value_info(name, FLOAT, ["n", 4])] for name in "xy"]
    graph = helper.make_graph([before, sums, which, choice], "g", *ends, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.checker.check_model(made, full_check=True)
    return made


@pytest.mark.parametrize("product_before", [True, False])
def test_inspection_says_how_many_there_are_and_in_what(tmp_path, product_before):
    path = tmp_path / "model.onnx"
    onnx.save(two_branches(product_before=product_before), path)
    found = quant.inspect(path)
    assert [layer.name for layer in found.layers] == (["before"] if product_before else [])
    assert found.nested == SAID
    shown = CliRunner().invoke(app, ["inspect", str(path)])
    assert SAID in " ".join(shown.output.split())


def test_a_run_that_finds_nothing_else_says_so(tmp_path):
    onnx.save(two_branches(product_before=False), tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32))
    recipe = {
        "version": 1,
        "name": "nested",
        "model": {"source": "model.onnx"},
        "data": {"source": "data.npz", "splits": {"calibration": 16, "evaluation": 16}},
        "schemes": ["int8"],
        "targets": ["onnxruntime"],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    with pytest.raises(PlanError, match=r"nothing to quantize: 2 layers \(Gemm 1, MatMul 1\) lie in graphs nested in If, which are left as they are"):
        quant.run(tmp_path / "recipe.yaml", output=tmp_path / "out")
