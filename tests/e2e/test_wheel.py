"""The wheel, installed beside what it needs, in a folder that knows nothing of the checkout."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

TOP = Path(__file__).resolve().parents[2]
RECIPE = """\
version: 1
name: plane
model: {source: model.onnx}
data: {source: data.npz, label: {column: y}, splits: {calibration: 32, evaluation: rest}}
schemes: [int8, int8-dynamic]
evaluation: {metrics: [accuracy]}
gate: {max_drop: 0.1}
latency: {requests: 2, warmup: 0}
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(TOP), "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder)]
    built = subprocess.run(command, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    [file] = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """`quant` of a virtual environment that sees this one's libraries, but not the checkout."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    [place] = folder.glob("lib/python*/site-packages")
    libraries = [p for p in sys.path if p.endswith("site-packages")]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet", str(wheel)], check=True)
    (place / "libraries.pth").write_text("\n".join(libraries) + "\n")
    return folder / "bin" / "quant"


@pytest.fixture
def call(installed, tmp_path):
    """Runs the installed `quant` in another folder."""

    def run(*arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment["QUANT_CACHE"] = str(tmp_path / "cache")
        return subprocess.run([str(installed), *map(str, arguments)], check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)

    return run


def test_the_wheel_holds_recipes_and_templates_and_nothing_else_of_ours(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = (*TOP.glob("recipes/*.yaml"), *(p for p in TOP.glob("quant/**/templates/**/*") if p.is_file()))
    for file in shipped:
        assert file.relative_to(TOP).as_posix() in names
    tops = {name.split("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"quant", "calibrators", "evaluators", "recipes"}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_it_is_the_wheel_that_runs_and_shipped_recipes_are_found(call, installed):
    where = subprocess.run(
        [str(installed.parent / "python"), "-c", "import quant; print(quant.__file__)"], check=True, capture_output=True, text=True, cwd=installed.parent
    )
    assert str(installed.parent.parent) in where.stdout
    shown = call("show", "text-sentiment")
    assert shown.returncode == 0, shown.stderr
    assert "name: text-sentiment" in shown.stdout
    assert "text-sentiment" in call("recipes").stdout
    assert json.loads(call("list", "--json").stdout)["scheme"]


def test_a_recipe_runs_from_end_to_end(call, tmp_path):
    random = np.random.default_rng(0)
    weight, x = random.normal(size=(8, 3)).astype(np.float32), random.normal(size=(300, 8)).astype(np.float32)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 8), ("logits", 3))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"], name="only")], "plane", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=x, y=np.argmax(x @ weight, axis=1))
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    done = call("run", "recipe.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Pass: " in done.stdout
    folder = tmp_path / "runs" / "plane"
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")
    assert json.loads((folder / "report.json").read_text(encoding="utf-8"))["verdict"] == "pass"
    again = call("run", "recipe.yaml", "--json")
    assert set(json.loads(again.stdout)["timings"]["stages"].values()) == {0}
