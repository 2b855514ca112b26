"""An artifact that lies somewhere, audited against a plan: by its folder, by its main file, or as a model file alone."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import quant
from quant.core.documents import PrecisionPlan
from quant.targets import TARGETS, Availability

TOP = Path(__file__).resolve().parents[3]


@pytest.fixture
def artifact(finished):
    return finished.project.output / "artifacts/onnxruntime/int8"


@pytest.fixture
def plan(finished):
    return finished.project.output / "plans/onnxruntime/int8.json"


def changed(plan, to, **choices):
    """`plan` with other formats for some layers."""
    before = PrecisionPlan.load(plan)
    layers = tuple(c.model_copy(update={"format": choices.get(c.layer.replace("/", "_"), c.format)}) for c in before.layers)
    before.model_copy(update={"layers": layers}).save(to)
    return to


def test_the_plan_of_the_run_is_found_and_the_audit_is_that_of_the_run(finished, artifact):
    stored = json.loads((finished.project.output / "plans/onnxruntime/int8.audit.json").read_text())
    found = quant.audit(artifact)
    assert found.audit.model_dump(mode="json") == stored
    assert found.wrong == ()
    assert [row.layer for row in found.audit.rows] == ["dense/first", "dense/second"]


def test_the_main_file_stands_for_its_folder(artifact):
    assert quant.audit(artifact / "model.onnx") == quant.audit(str(artifact))


def test_a_layer_that_runs_otherwise_is_named_and_ends_with_1(cli, artifact, plan, tmp_path):
    outcome = cli("audit", artifact, "--plan", changed(plan, tmp_path / "plan.json", dense_first="fp32"))
    assert outcome.code == 1
    assert re.search(r"dense/first +│ fp32 +│ int8 +│ QGemm +│ NO", outcome.out)
    assert outcome.out.splitlines()[-1] == "1 of 2 layers do not run as planned: dense/first"


def test_all_as_planned_ends_with_0(cli, artifact):
    outcome = cli("audit", artifact)
    assert outcome.code == 0
    assert re.search(r"dense/first +│ int8 +│ int8 +│ QGemm +│ yes", outcome.out)
    assert outcome.out.splitlines()[-1] == "2 of 2 layers run as planned"


def test_what_the_engine_emulates_by_nature_is_said_and_does_not_count(cli, finished):
    outcome = cli("audit", finished.project.output / "artifacts/onnxruntime/fp16")
    assert outcome.code == 0
    assert "note: ONNX Runtime computes FP16 in FP32" in outcome.out
    assert outcome.out.splitlines()[-1] == "0 of 2 layers run as planned"


def test_json_has_the_audit_and_the_layers_that_are_wrong(cli, artifact, plan, tmp_path):
    outcome = cli("audit", artifact, "--json", "--plan", changed(plan, tmp_path / "plan.json", dense_second="fp32"))
    assert outcome.code == 1
    told = json.loads(outcome.out)
    assert told["wrong"] == ["dense/second"]
    assert [row["agrees"] for row in told["audit"]["rows"]] == [True, False]
    assert told["emulated"] is None


def test_a_model_file_alone_is_audited_for_the_target_that_is_named(artifact, plan, tmp_path):
    bare = tmp_path / "elsewhere.onnx"
    shutil.copy(artifact / "model.onnx", bare)
    assert quant.audit(bare, plan=plan, target="onnxruntime").audit == quant.audit(artifact).audit


def test_a_fp32_model_file_does_not_run_an_int8_plan(finished, plan):
    found = quant.audit(finished.project.folder / "digits.onnx", plan=plan, target="onnxruntime")
    assert [(row.layer, row.runs) for row in found.wrong] == [("dense/first", "fp32"), ("dense/second", "fp32")]


WRONG = {
    "no such artifact": "{tmp}/nowhere",
    "holds no artifact.json": "{tmp}",
    "a model file alone has no plan": "{run}/../digits.onnx --target onnxruntime",
    "nothing says which engine this file is for": "{run}/../digits.onnx --plan {run}/plans/onnxruntime/int8.json",
    "the plan that it was made from does not lie beside it": "{run}/artifacts/onnxruntime/fp32",
    "the artifact is for 'onnxruntime', not for 'openvino'": "{run}/artifacts/onnxruntime/int8 --target openvino",
    "unknown target 'onnxruntme'": "{run}/../digits.onnx --target onnxruntme --plan {run}/plans/onnxruntime/int8.json",
    "no such PrecisionPlan": "{run}/artifacts/onnxruntime/int8 --plan {tmp}/plan.json",
    "not a PrecisionPlan": "{run}/artifacts/onnxruntime/int8 --plan {run}/report.json",
}


@pytest.mark.parametrize("said", WRONG)
def test_wrong_input_ends_with_2_and_says_what_is_wrong(cli, finished, said, tmp_path):
    outcome = cli("audit", *(word.format(run=finished.project.output, tmp=tmp_path) for word in WRONG[said].split()))
    assert outcome.code == 2
    assert said in outcome.err
    assert "hint: " in outcome.err or "PrecisionPlan" in said


def test_a_plan_of_another_model_is_refused(artifact, plan, tmp_path):
    other = PrecisionPlan.load(plan)
    strange = other.layers[0].model_copy(update={"layer": "conv_stem"})
    other.model_copy(update={"layers": (strange,)}).save(tmp_path / "plan.json")
    with pytest.raises(quant.QuantError, match="the plan names layer 'conv_stem', which the artifact does not have"):
        quant.audit(artifact, plan=tmp_path / "plan.json")


@pytest.mark.parametrize(("change", "said"), [(lambda f: f.write_bytes(f.read_bytes() + b" "), "no longer what was written"), (Path.unlink, "missing")])
def test_files_that_changed_are_not_audited_as_if_they_had_not(artifact, plan, tmp_path, change, said):
    shutil.copytree(artifact, tmp_path / "copy")
    change(tmp_path / "copy/model.onnx")
    with pytest.raises(quant.QuantError, match=f"model.onnx is {said}"):
        quant.audit(tmp_path / "copy", plan=plan)


def test_an_engine_that_is_missing_is_said_with_how_to_get_it(artifact, monkeypatch):
    engine = TARGETS.get("onnxruntime")
    monkeypatch.setattr(engine, "available", lambda _self: Availability(available=False, reason="it is not there", install="pip install it"))
    with pytest.raises(quant.QuantError, match="onnxruntime is not available here: it is not there\nhint: pip install it"):
        quant.audit(artifact)


@pytest.mark.slow
def test_a_fresh_process_needs_nothing_but_the_folder(finished, tmp_path):
    environment = {**os.environ, "QUANT_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-m", "quant.cli", "audit", "artifacts/onnxruntime/int8"]
    done = subprocess.run(command, cwd=finished.project.output, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 2 layers run as planned" in done.stdout
