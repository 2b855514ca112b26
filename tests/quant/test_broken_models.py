"""Every command that reads a model, given every kind of file that is none: exit code 2, `where: what`, no traceback."""

import json
import shutil

import numpy as np
import onnx
import pytest

from quant.cli import app
from quant.targets import TARGETS

NO_MODEL = {"report", "verify", "sign", "serve", "show", "schema", "list", "doctor", "cache", "recipes"}
"""Commands that read no model file."""
READING = {
    "inspect": lambda file, _: ["inspect", file],
    "check": lambda file, _: ["check", file],
    "ladder": lambda file, _: ["ladder", file, "--target", "onnxruntime"],
    "ladder, baseline": lambda file, p: ["ladder", p.folder / "digits.onnx", "--baseline", file, "--target", "onnxruntime"],
    "compare, old": lambda file, p: ["compare", file, p.folder / "digits.onnx"],
    "compare, new": lambda file, p: ["compare", p.folder / "digits.onnx", file],
    "validate, artifact": lambda file, p: ["validate", file, "--baseline", p.folder / "digits.onnx", "--data", p.recipe],
    "validate, baseline": lambda file, p: ["validate", p.folder / "artifact", "--baseline", file, "--data", p.recipe],
    "run": lambda file, p: ["run", p.recipe, "--output", p.output, "--set", f"model.source={file}"],
    "calibrate": lambda file, p: ["calibrate", p.recipe, "--output", p.output, "--set", f"model.source={file}"],
    "evaluate": lambda file, p: ["evaluate", p.recipe, "--set", f"model.source={file}"],
    "profile": lambda file, p: ["profile", p.recipe, "--set", f"model.source={file}"],
    "plan": lambda file, p: ["plan", p.recipe, "--output", p.folder / "new.json", "--set", f"model.source={file}"],
    "apply": lambda file, p: ["apply", p.recipe, "--plan", p.folder / "plan.json", "--output", p.output, "--set", f"model.source={file}"],
    **{f"audit, {kind}": lambda file, p, kind=kind: ["audit", file, "--target", kind, "--plan", p.folder / "plan.json"] for kind in TARGETS},
}


def half(model, path):
    path.write_bytes(model.SerializeToString()[: model.ByteSize() // 2])


def without_data(model, path):
    onnx.save(model, path, save_as_external_data=True, location="gone.data", size_threshold=0)
    path.with_name("gone.data").unlink()


def half_of_its_data(model, path):
    onnx.save(model, path, save_as_external_data=True, location="short.data", size_threshold=0)
    data = path.with_name("short.data")
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])


def another_operator(model, path):
    model.graph.node[0].op_type = "Gemmm"
    onnx.save(model, path)


BROKEN = {
    "truncated": half,
    "empty": lambda _, path: path.write_bytes(b""),
    "text": lambda _, path: path.write_text("nothing that is a model\n" * 20, encoding="utf-8"),
    "a folder": lambda _, path: path.mkdir(),
    "no file": lambda *_: None,
    "without its data": without_data,
    "half of its data": half_of_its_data,
    "an unknown operator": another_operator,
}
RECIPES = ("run", "calibrate", "evaluate", "profile", "plan", "apply")
ALLOWED = {("inspect", "an unknown operator"), ("check", "an unknown operator")}
"""These look at a graph without running it: an operator of whatever name is one."""


@pytest.fixture
def planned(project):
    layers = ("dense/first", "dense/second")
    project.write({"data": {"splits": {"search": 100}}})
    (project.folder / "plan.json").write_text(json.dumps({"version": 1, "target": "onnxruntime", "layers": dict.fromkeys(layers, "int8")}), encoding="utf-8")
    return project


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("command", READING)
def test_a_broken_model_ends_with_2_and_says_where(planned, cli, digits_model, command, kind):
    if (command, kind) in ALLOWED:
        pytest.skip("it is one for this command")
    file = planned.folder / "broken.onnx"
    BROKEN[kind](onnx.load_from_string(digits_model), file)
    done = cli(*READING[command](file, planned))
    assert done.code == 2, done
    assert "Traceback" not in done.err
    assert done.err.startswith("error: "), done.err
    assert "broken" in done.err or "artifact" in done.err, done.err
    assert done.out == ""
    assert not (planned.output.exists() and any(planned.output.rglob("*.onnx")))


@pytest.mark.parametrize("command", RECIPES)
def test_a_weight_that_is_no_number_is_named(planned, cli, digits, command):
    planned.weights(w1=np.where(np.arange(digits.weights["w1"].size).reshape(digits.weights["w1"].shape) == 3, np.nan, digits.weights["w1"]))
    done = cli(*READING[command](planned.folder / "digits.onnx", planned))
    assert done.code == 2, done
    assert done.err.startswith("error: --set model.source: weight 'w1' is NaN in 1 of 480 values\nhint: ")


@pytest.mark.parametrize("kind", [kind for kind in BROKEN if kind not in {"a folder", "no file", "without its data", "half of its data"}])
def test_an_artifact_whose_model_is_broken_is_not_audited(finished, cli, tmp_path, digits_model, kind):
    shutil.copytree(finished.project.output / "artifacts" / "onnxruntime" / "int8", tmp_path / "int8")
    shutil.copyfile(finished.project.output / "plans" / "onnxruntime" / "int8.json", tmp_path / "plan.json")
    BROKEN[kind](onnx.load_from_string(digits_model), tmp_path / "int8" / "model.onnx")
    done = cli("audit", tmp_path / "int8", "--plan", tmp_path / "plan.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert "model.onnx" in done.err


def test_every_command_is_held_to_that():
    names = {command.name or command.callback.__name__ for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert names == NO_MODEL | {name.split(",")[0] for name in READING}
