"""The commands of README run, one after the other as they stand there, on a recipe of a second."""

import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper, save_model
from typer.testing import CliRunner

from quant.cli import app

README = Path(__file__).resolve().parents[2] / "README.md"
COMMANDS = [
    line[2:]
    for words, text in re.findall(r"^```console([^\n]*)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in text.splitlines()
    if line.startswith("$ quant ") and "quick" not in words
]
R = np.random.default_rng(5)


def write_recipe(folder):
    """Two classes of points, a network that tells them apart, and a recipe called like the shipped one."""
    w, b = np.eye(8, 16, dtype=np.float32), np.zeros(16, np.float32)
    v = np.stack([np.ones(16), -np.ones(16)], axis=1).astype(np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="in"), helper.make_node("MatMul", ["h", "v"], ["y"], name="out")]
    weights = [numpy_helper.from_array(a, n) for a, n in ((w, "w"), (b, "b"), (v, "v"))]
    inputs, outputs = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", size])] for n, size in (("x", 8), ("y", 2)))
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
    x = R.normal(size=(1500, 8)).astype(np.float32)
    np.savez(folder / "points.npz", x=x, label=(x.sum(axis=1) < 0).astype(np.int64))
    recipe = {
        "version": 1,
        "name": "points",
        "model": {"source": "model.onnx"},
        "data": {"source": "points.npz", "label": {"column": "label"}, "splits": {"calibration": 64, "search": 200, "evaluation": "rest"}},
        "schemes": ["int8"],
        "transforms": [],
        "evaluation": {"metrics": ["accuracy"]},
        "gate": {"max_drop": 0.05},
        "latency": {"requests": 5, "warmup": 1},
        "plan": {"minimize": "size"},
    }
    (folder / "points.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")


def adapted(command, folder):
    """The command with what only a reader has put in the place of what README calls it."""
    if command.startswith("quant recipes copy"):
        return command
    openvino = importlib.util.find_spec("openvino") is not None
    places = {
        " text-sentiment ": " points.yaml ",
        "out/monday": "out/text-sentiment",
        "out/tuesday": "out/mixed",
        "quant serve out": "quant serve out --json",
        "quantized.onnx": str(next((folder / "out").rglob("int8/model.onnx"), "quantized.onnx")),
        "--target openvino": "--target openvino" if openvino else "--target onnxruntime",
        "--seconds 10": "--seconds 1",
    }
    for before, after in places.items():
        command = command.replace(before, after)
    return command


@pytest.mark.slow
def test_the_commands_in_readme_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUANT_CACHE", str(tmp_path / "cache"))
    write_recipe(tmp_path)
    assert {command.split()[1] for command in COMMANDS} >= {"run", "profile", "plan", "apply", "validate", "verify", "compare", "report", "serve"}
    for command in COMMANDS:
        done = CliRunner().invoke(app, shlex.split(adapted(command, tmp_path))[1:])
        # `check` finds something in a model that is not quantized, `compare` differences; an error is 2, a bug 70.
        assert done.exit_code in {0, 1}, f"{command}: {done.output}\n{done.exception!r}"
        assert done.exception is None or isinstance(done.exception, SystemExit), command
    for made in (
        "out/text-sentiment/report.html",
        "profile.json",
        "plan.yaml",
        "out/mixed/report.html",
        "validation.xml",
        "out/table/table.json",
        "page.html",
        "my.yaml",
    ):
        assert (tmp_path / made).is_file(), made
    shutil.rmtree(tmp_path / "cache")
