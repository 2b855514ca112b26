"""ARCHITECTURE.md tells which files one call of `quant.run` goes through; here the call is made and watched."""

import importlib
import pkgutil
import re
import sys
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import calibrators
import evaluators
import quant

RECIPE = """\
version: 1
name: tiny
model: {source: model.onnx}
data:
  source: data.npz
  label: {column: y}
  splits: {calibration: 32, evaluation: rest}
schemes: [int8]
evaluation: {metrics: [accuracy]}
gate: {max_drop: 0.1}
latency: {requests: 2, warmup: 0, threads: 1}
"""


@pytest.fixture
def recipe(tmp_path):
    """A recipe with a model of one layer, and data that it made itself."""
    rng = np.random.default_rng(0)
    weight, x = rng.normal(size=(8, 3)).astype(np.float32), rng.normal(size=(200, 8)).astype(np.float32)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 8), ("logits", 3))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"], name="only")], "tiny", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")]
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=x, y=np.argmax(x @ weight, axis=1))
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return tmp_path / "recipe.yaml"


def _visited(top, call):
    """The project's files in the order in which a function of theirs is first called."""
    for package in (quant, calibrators, evaluators):  # what is called while a module is imported is no part of the call
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found = {}
    prefix = f"{top}/"

    def see(frame, event, _argument):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(prefix):
            found.setdefault(name.removeprefix(prefix))

    before = sys.gettrace()  # a debugger's or a coverage tool's
    threading.settrace(see)
    sys.settrace(see)
    try:
        call()
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return list(found)


def test_one_call_goes_through_the_files_that_architecture_names_in_that_order(top, recipe, tmp_path):
    text = (top / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = re.search(r"\n## One call\n(.*?)\n## ", text, re.DOTALL)[1]
    listed = re.findall(r"^\d+\. `([\w/]+\.py)`", section, re.MULTILINE)
    assert len(listed) > 10
    visited = _visited(top, lambda: quant.run(recipe, output=tmp_path / "out"))
    assert [name for name in visited if name in listed] == listed
