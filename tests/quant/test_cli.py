"""Every command: what it prints, as text and as JSON, and how it ends: 0 pass, 1 fail, 2 the input is wrong, 3 inconclusive."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

import quant
from quant.cli import app
from quant.core.table import CalibrationTable

TOP = Path(__file__).resolve().parents[2]


def _commands():
    import typer.main

    group = typer.main.get_command(app)
    found = [[name] for name in group.commands]
    return [*found, ["recipes", "copy"], []]


def test_run_prints_verdict_table_and_report_and_exits_with_0(cli, finished, monkeypatch):
    monkeypatch.setenv("QUANT_CACHE", str(finished.cache))
    outcome = cli("run", finished.project.recipe, "--output", finished.project.output)
    assert outcome.code == 0
    assert outcome.err == ""
    lines = outcome.out.splitlines()
    assert lines[0].startswith("Pass: ")
    assert all(re.search(rf"{scheme} +✓ pass", outcome.out) for scheme in ("fp16", "int8-dynamic", "int8"))
    assert lines[-1] == f"report: {finished.project.output / 'report.html'}"
    assert "\x1b" not in outcome.out, "no colours where there is no terminal"
    assert max(map(len, lines[1:-2])) < 130


def test_run_prints_its_report_as_json(cli, finished, monkeypatch):
    monkeypatch.setenv("QUANT_CACHE", str(finished.cache))
    outcome = cli("run", finished.project.recipe, "--output", finished.project.output, "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out) == json.loads((finished.project.output / "report.json").read_text(encoding="utf-8"))


def test_run_says_what_is_worth_saying_about_model_and_data(cli, project, digits):
    project.data(x=np.concatenate([digits.x, digits.x[:3]]), y=np.concatenate([digits.y, digits.y[:3]]))
    outcome = cli("run", project.recipe, "--output", project.output)
    assert outcome.code == 0
    assert "note: 3 duplicate rows dropped" in outcome.out


def test_a_run_that_fails_its_gate_exits_with_1(cli, project):
    project.write(
        {
            "schemes": [{"kind": "int8", "per_channel": False}],
            "gate": {"metric": "mean-score", "max_drop": 0},
            "evaluation": {"metrics": [{"kind": "mean-score", "column": 0}]},
        }
    )
    outcome = cli("run", project.recipe, "--output", project.output, "--set", "gate.confidence=0.51")
    assert outcome.code in {1, 3}
    project.write({"gate": {"max_drop": 0.001}, "data": {"splits": {"evaluation": "rest"}}})
    _spoil_calibration(project)
    outcome = cli("run", project.recipe, "--output", project.output)
    assert outcome.code == 1, outcome
    note, verdict, *_ = outcome.out.splitlines()
    assert note.startswith("note: the gate on accuracy cannot pass on 1,733 samples unless a candidate is better than FP32")
    assert verdict.startswith("Fail: int8 on onnxruntime does not keep accuracy within 0.1 points of FP32")


def _spoil_calibration(project):
    """One huge pixel in every 10th sample: ranges that leave nothing to the others."""
    with np.load(project.folder / "digits.npz") as stored:
        x, y = stored["x"].copy(), stored["y"]
    x[::10, 0] = 400
    project.data(x=x, y=y)
    project.weights(w0=_without_first_pixel(project))
    project.write({**yaml.safe_load(project.recipe.read_text()), "calibration": {"calibrator": "minmax"}})


def _without_first_pixel(project):
    import onnx
    from onnx import numpy_helper

    [w0] = [numpy_helper.to_array(t).copy() for t in onnx.load(project.folder / "digits.onnx").graph.initializer if t.name == "w0"]
    w0[0] = 0
    return w0


def test_a_run_that_cannot_tell_exits_with_3_and_says_how_many_samples_would(cli, project):
    project.write({"data": {"splits": {"evaluation": 40}}, "gate": {"max_drop": 0.01}})
    outcome = cli("run", project.recipe, "--output", project.output)
    assert outcome.code == 3
    assert re.search(r"Inconclusive: .*about [\d,]+ more samples needed", outcome.out)


def test_set_overrides_the_recipe(cli, project):
    outcome = cli("run", project.recipe, "--output", project.output, "--set", "schemes=[int8-dynamic]", "--set", "gate.max_drop=0.2")
    assert outcome.code == 0
    report = quant.load_report(project.output)
    assert [c.scheme for c in report.candidates] == ["int8-dynamic"]
    assert report.candidates[0].gates[0].verdict.limit == 0.2
    assert yaml.safe_load((project.output / "recipe.yaml").read_text())["gate"][0]["max_drop"] == 0.2


def test_a_wrong_override_is_named_as_such(cli, project):
    outcome = cli("run", project.recipe, "--output", project.output, "--set", "gate.max_dorp=0.2")
    assert outcome.code == 2
    assert "--set gate.max_dorp" in outcome.err
    assert "max_drop" in outcome.err


def test_the_output_folder_is_called_after_the_recipe_when_none_is_given(cli, project, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli("run", project.recipe, "--set", "schemes=[int8-dynamic]").code == 0
    assert (tmp_path / "runs" / "digits" / "report.html").exists()


def test_what_show_prints_loads_again(cli, project):
    project.write({"extends": None, "schemes": [{"kind": "int8", "exclude": ["dense/*"]}]})
    outcome = cli("show", project.recipe, "--set", "data.seed=3")
    assert outcome.code == 0
    (project.folder / "again.yaml").write_text(outcome.out, encoding="utf-8")
    assert cli("show", project.folder / "again.yaml").out == outcome.out
    assert quant.load_recipe(project.folder / "again.yaml").digest == quant.load_recipe(project.recipe, ["data.seed=3"]).digest


def test_schema_prints_a_json_schema_that_recipes_keep(cli, project, tmp_path):
    outcome = cli("schema")
    found = json.loads(outcome.out)
    jsonschema.Draft202012Validator.check_schema(found)
    jsonschema.validate(yaml.safe_load(project.recipe.read_text()), found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**yaml.safe_load(project.recipe.read_text()), "shcemes": []}, found)
    assert cli("schema", "--output", tmp_path / "schema.json").code == 0
    assert (tmp_path / "schema.json").read_text(encoding="utf-8") == outcome.out


def test_list_names_every_plugin(cli):
    from quant.engine.bind import REGISTRIES

    told = json.loads(cli("list", "--json").out)
    assert told == {noun: list(registry.kinds()) for noun, registry in REGISTRIES.items()}
    text = cli("list").out
    assert all(kind in text for kinds in told.values() for kind in kinds)
    assert list(json.loads(cli("list", "target", "--json").out)) == ["target"]
    refused = cli("list", "tragets")
    assert refused.code == 2
    assert "no such kind of plug-in: 'tragets'" in refused.err
    assert "did you mean 'target'" in refused.err


def test_inspect_shows_inputs_outputs_and_layers(cli, project):
    outcome = cli("inspect", project.folder / "digits.onnx")
    assert outcome.code == 0
    assert re.search(r"dense/first\W+Gemm\W+64x48\W+axis 1", outcome.out)
    found = json.loads(cli("inspect", project.folder / "digits.onnx", "--json").out)
    assert [layer["name"] for layer in found["layers"]] == ["dense/first", "dense/second"]
    assert found["parameters"] == 64 * 48 + 48 + 48 * 10 + 10
    assert found["operators"] == {"Gemm": 2, "Relu": 1}


def test_names_in_a_model_do_not_act_on_the_terminal(cli, project):
    model = onnx.load(project.folder / "digits.onnx")
    model.graph.node[0].name = "[bold]evil\x1b[31m\u202e"
    onnx.save(model, project.folder / "evil\x1b[32m.onnx")
    shown = cli("inspect", project.folder / "evil\x1b[32m.onnx").out
    assert r"[bold]evil\x1b[31m\u202e" in shown
    assert "\x1b" not in shown
    model.graph.node[0].input[0] = "nowhere\x1b[31m"
    onnx.save(model, project.folder / "evil\x1b[32m.onnx")
    told = cli("inspect", project.folder / "evil\x1b[32m.onnx").err
    assert r"evil\x1b[32m.onnx: " in told
    assert "\x1b" not in told


def test_inspect_shows_which_layers_move_together_and_why(cli, tmp_path):
    nodes = [helper.make_node("MatMul", ["x", w], [f"{w}_out"], name=name) for w, name in (("q", "query"), ("k", "key"))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in ("x", "q_out", "k_out")]
    weights = [numpy_helper.from_array(np.eye(4, dtype=np.float32), name) for name in "qk"]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights), ir_version=10), tmp_path / "m.onnx")
    assert "  query, key (of one tensor: x)" in cli("inspect", tmp_path / "m.onnx").out
    assert json.loads(cli("inspect", tmp_path / "m.onnx", "--json").out)["groups"] == [{"bonds": ["reads"], "layers": ["query", "key"], "tensors": ["x"]}]


@pytest.mark.parametrize(("name", "message"), [("nowhere.onnx", "no such model file"), ("recipe.yaml", "not an ONNX model"), (".", "is a folder")])
def test_inspect_refuses_what_is_no_model(cli, project, name, message):
    outcome = cli("inspect", project.folder / name)
    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_calibrate_writes_the_table(cli, project, finished):
    outcome = cli("calibrate", project.recipe, "--output", project.folder / "table")
    assert outcome.code == 0
    assert "2 tensors over 64 samples" in outcome.out
    assert CalibrationTable.load(project.folder / "table").samples == 64
    assert cli("calibrate", project.recipe, "--output", project.folder / "table").code == 0
    del finished


def test_calibrate_leaves_other_folders_alone(cli, project):
    outcome = cli("calibrate", project.recipe, "--output", project.folder)
    assert outcome.code == 2
    assert f"{project.folder}: holds something else than a calibration table" in outcome.err
    assert project.recipe.exists()
    outcome = cli("calibrate", project.recipe, "--output", project.recipe)
    assert outcome.code == 2
    assert project.recipe.is_file()


def test_calibrate_says_when_there_is_nothing_to_calibrate(cli, project):
    outcome = cli("calibrate", project.recipe, "--output", project.folder / "table", "--set", "schemes=[int8-dynamic]")
    assert outcome.code == 2
    assert "none of the recipe's schemes needs calibration" in outcome.err
    assert not (project.folder / "table").exists()


def test_evaluate_tells_the_metrics_of_fp32(cli, project, finished):
    told = json.loads(cli("evaluate", project.recipe, "--json").out)
    assert told == {"accuracy": finished.run.report.baseline.value}
    assert cli("evaluate", project.recipe).out == f"accuracy: {told['accuracy']:.6g}\n"


def test_compare_ends_with_1_where_something_got_worse_and_is_not_allowed_to(cli, finished, tmp_path):
    report = finished.run.report
    worse = report.model_copy(update={"candidates": tuple(c.model_copy(update={"size_bytes": 2 * (c.size_bytes or 1)}) for c in report.candidates)})
    (tmp_path / "report.json").write_text(worse.to_json(), encoding="utf-8")
    outcome = cli("compare", finished.project.output, tmp_path)
    assert outcome.code == 1
    assert "worse than before" in outcome.out
    assert cli("compare", finished.project.output, tmp_path, "--allow", "size").code == 0
    assert cli("compare", tmp_path, finished.project.output).code == 0
    refused = cli("compare", finished.project.output, tmp_path, "--allow", "sise")
    assert refused.code == 2
    assert "--allow: no such aspect of a run: 'sise'" in refused.err
    assert "did you mean 'size'" in refused.err


def test_compare_tells_two_runs_apart(cli, finished, project):
    assert cli("run", project.recipe, "--output", project.output).code == 0
    outcome = cli("compare", finished.project.output, project.output, "--allow", "candidates", "--allow", "time")  # times of a moment, by chance
    assert outcome.code == 0
    assert "int8-dynamic" in outcome.out
    found = json.loads(cli("compare", finished.project.output, project.output, "--json").out)
    assert found["same_model"]
    assert found["same_data"]
    assert not found["same_results"]
    assert {c["scheme"]: c["presence"] for c in found["candidates"]} == {"fp16": "removed", "int8-dynamic": "removed", "int8": "both"}


@pytest.mark.parametrize(
    ("made", "message"),
    [(None, "no such run"), ({}, "this folder has no report.json"), ({"report.json": "{}"}, "not a report"), ({"report.json": "no"}, "not a report")],
)
def test_compare_refuses_what_is_no_run(cli, finished, tmp_path, made, message):
    other = tmp_path / "other"
    if made is not None:
        other.mkdir()
        for name, text in made.items():
            (other / name).write_text(text)
    for pair in ((finished.project.output, other), (other, finished.project.output)):
        outcome = cli("compare", *pair)
        assert outcome.code == 2
        assert message in outcome.err
        assert str(other) in outcome.err


def test_recipes_lists_and_copies(cli, tmp_path):
    text = cli("recipes").out
    assert "text-sentiment" in text
    outcome = cli("recipes", "copy", "text-sentiment", tmp_path)
    assert outcome.code == 0
    copied = tmp_path / "text-sentiment.yaml"
    assert f"copied to {copied}" in outcome.out.replace("\n", "")
    assert cli("show", copied).out == cli("show", "text-sentiment").out
    named = re.search(r"\$schema=(\S+)", copied.read_text(encoding="utf-8"))[1]
    assert json.loads((copied.parent / named).read_text(encoding="utf-8"))["type"] == "object"
    again = cli("recipes", "copy", "text-sentiment", tmp_path)
    assert again.code == 2
    assert "exists already" in again.err
    typo = cli("recipes", "copy", "text-sentimant", tmp_path)
    assert typo.code == 2
    assert "did you mean 'text-sentiment'" in typo.err
    assert cli("recipes", "copy", "text-sentiment", "/proc/nowhere/x.yaml").code == 2


def test_show_refuses_the_options_that_a_run_would_refuse(cli, project):
    outcome = cli("show", project.recipe, "--set", "schemes=[{kind: int8, per_chanel: false}]")
    assert outcome.code == 2
    assert "did you mean 'per_channel'?" in outcome.err


def test_doctor_shows_engines_libraries_and_the_cache(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("QUANT_CACHE", str(tmp_path / "here"))
    found = json.loads(cli("doctor", "--json").out)
    assert found["cache"] == str(tmp_path / "here")
    assert found["targets"]["onnxruntime"].startswith("version ")
    assert {"python", "cpu", "numpy", "threads"} <= set(found["environment"])
    text = cli("doctor").out
    assert "onnxruntime" in text
    assert not (tmp_path / "here").exists(), "looking makes nothing"


@pytest.mark.parametrize("command", _commands(), ids=" ".join)
def test_every_command_explains_itself(cli, command):
    outcome = cli(*command, "--help")
    assert outcome.code == 0
    assert "Usage" in outcome.out


@pytest.mark.parametrize("arguments", [["rnu"], ["run"], ["run", "--otuput", "x"], ["recipes", "cpoy"], ["compare", "a"], ["show", "a", "b"]], ids=" ".join)
def test_a_mistyped_command_is_a_usage_error(cli, arguments):
    outcome = cli(*arguments)
    assert outcome.code == 2
    assert "Usage" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_bug_of_ours_shows_its_traceback_and_is_no_verdict(monkeypatch, project, capsys):
    from quant.cli import main
    from quant.engine import run as engine

    def bug(*_arguments, **_options):
        raise AssertionError("a bug")

    monkeypatch.setattr(engine, "prepare", bug)
    monkeypatch.setattr(sys, "argv", ["quant", "run", str(project.recipe), "--output", str(project.output)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 70
    told = capsys.readouterr().err
    assert "AssertionError: a bug" in told
    assert "bug of the toolkit" in told


def test_markup_in_names_is_not_obeyed(cli, project):
    outcome = cli("run", project.folder / "[red]x[/red].yaml", "--output", project.output)
    assert outcome.code == 2
    assert "[red]x[/red].yaml" in outcome.err


def test_an_interrupted_run_says_what_it_leaves(cli, project, monkeypatch):
    from quant.engine import candidates

    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(candidates, "calibrate", interrupted)
    outcome = cli("run", project.recipe, "--output", project.output)
    assert outcome.code == 130
    assert outcome.err == "interrupted; what was finished is kept, the same command goes on from there\n"
    assert not project.output.exists()


@pytest.mark.slow
def test_control_c_ends_a_run_in_a_process_of_its_own(project, tmp_path):
    environment = {**os.environ, "QUANT_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-m", "quant.cli", "run", str(project.recipe), "--output", str(project.output)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (project.output / ".lock").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err == "interrupted; what was finished is kept, the same command goes on from there\n"
    assert not project.output.exists()


def test_a_terminal_that_knows_no_arrows_gets_the_verdict_all_the_same(finished):
    environment = {**os.environ, "QUANT_CACHE": str(finished.cache), "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-m", "quant.cli", "run", finished.project.recipe, "--output", finished.project.output]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Pass: ")
