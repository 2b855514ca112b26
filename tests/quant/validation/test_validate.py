"""`quant validate`: what it says and writes, budgets, artifacts apart from their run, recipes that differ, and how it ends."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
import yaml

import quant
from quant.core.digest import digest_of_file
from quant.core.documents import Artifact
from quant.errors import QuantError, RunError
from quant.report.load import load_report
from quant.validation.check import CHECKS
from quant.validation.findings import Validation

CONFTEST_RECIPE_LIMITS = {"load_s": 0.3, "load_threads": 4}


def by_name(found):
    return {check.check: check for check in found.checks}


def changed(delivered, place, **changes):
    """A recipe like that of the run, with sections replaced; its sources are found from anywhere."""
    recipe = yaml.safe_load(delivered.recipe.read_text(encoding="utf-8"))
    recipe["model"]["source"] = str(delivered.recipe.with_name("digits.onnx"))
    recipe["data"]["source"] = str(delivered.recipe.with_name("digits.npz"))
    path = place / "changed.yaml"
    path.write_text(yaml.safe_dump({**recipe, **changes}), encoding="utf-8")
    return path


def test_validate_prints_and_writes_what_it_finds_and_exits_with_0(cli, delivered, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    written = ["--junit", tmp_path / "junit.xml", "--sarif", tmp_path / "out.sarif"]
    outcome = cli("validate", delivered.folder, "--data", delivered.recipe, "--work", delivered.work, *written)
    assert outcome.code == 0, outcome
    assert outcome.out.splitlines()[-1] == "Pass: int8 on onnxruntime may go out; 16 checks held, 1 skipped."
    suite = ET.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("17", "0", "1")
    [run] = json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))["runs"]
    assert run["results"] == []
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == set(CHECKS)
    assert summary.read_text(encoding="utf-8").startswith("### Pass: int8 on onnxruntime may go out")


@pytest.mark.slow
def test_a_broken_run_is_told_in_every_form_and_exits_with_1(cli, delivered, tmp_path):
    broken = delivered.copy(tmp_path / "broken")
    path = broken / "report.md"
    path.write_text(path.read_text(encoding="utf-8") + "all is well\n", encoding="utf-8")
    told = ["--data", delivered.recipe, "--work", delivered.work, "--sarif", tmp_path / "out.sarif", "--junit", tmp_path / "junit.xml"]
    outcome = cli("validate", broken, *told, "--json")
    assert outcome.code == 1
    found = Validation.model_validate_json(outcome.out)
    assert [(check.check, check.status) for check in found.checks if check.findings] == [("files", "failed"), ("report-pages", "failed")]
    assert "the first: file report.md: is no longer what was written" in found.sentence
    [run] = json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))["runs"]
    places = {result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]}
    assert places == {(broken / "report.md").as_uri()}
    assert ET.parse(tmp_path / "junit.xml").getroot().get("failures") == "2"


def test_pages_of_another_version_of_the_toolkit_are_held_to_the_manifest_alone(delivered, tmp_path):
    """What draws the pages may have changed since; their bytes have not."""
    broken = delivered.copy(tmp_path / "run")
    (broken / "report.html").write_text("drawn otherwise", encoding="utf-8")
    report = load_report(broken)

    def look(report):
        return CHECKS.make("report-pages").look(SimpleNamespace(delivery=SimpleNamespace(folder=broken, report=report)))

    assert [str(finding) for finding in look(report).findings] == ["file report.html: is not what report.json says"]
    older = report.model_copy(update={"environment": {**report.environment, "quant-toolkit": "0123456789ab"}}).with_digest()
    found = look(older)
    assert found.status == "ok"
    assert found.said.startswith("made by another version of the toolkit (0123456789ab; this is ")
    edited = older.model_copy(update={"sentence": "All is well."})
    assert look(edited).status == "failed"


def test_the_manifest_says_what_the_run_was_made_of(delivered):
    told = json.loads((delivered.folder / "manifest.json").read_text(encoding="utf-8"))["made_of"]
    report = load_report(delivered.folder)
    assert (told["model"], told["samples"]) == (report.baseline.model_sha256, report.data.samples_sha256)
    assert told["recipe"] == hashlib.sha256((delivered.folder / "recipe.yaml").read_bytes()).hexdigest()
    assert told["environment"] == report.environment
    assert {"quant-toolkit", "python", "cpu", "onnxruntime"} <= set(told["environment"])


@pytest.mark.slow
def test_limits_that_hold_are_told_and_one_that_does_not_fails(delivered, tmp_path):
    limits = {**CONFTEST_RECIPE_LIMITS, "first_inference_s": 600, "memory_mib": 100_000, "p99_ms": 60_000, "throughput_per_s": 0.001, "size_mib": 10}
    found = delivered.validate(data=changed(delivered, tmp_path, limits=limits))
    assert found.verdict == "fail", "only for the sources, whose paths differ"
    assert by_name(found)["limits"].status == "ok"
    assert re.search(r"p99_ms \S+ ms \(at most 60000\); throughput_per_s \S+ /s \(at least 0.001\)", by_name(found)["limits"].said)
    tight = {**CONFTEST_RECIPE_LIMITS, "size_mib": 0.001, "throughput_per_s": 1e9, "memory_mib": 1}
    found = delivered.validate(data=changed(delivered, tmp_path, limits=tight))
    assert [finding.where for finding in by_name(found)["limits"].findings] == ["size_mib", "memory_mib", "throughput_per_s"]
    assert re.fullmatch(r"\S+ MiB, at most 0.001 is allowed", by_name(found)["limits"].findings[0].what)


@pytest.mark.slow
def test_a_recipe_that_differs_from_the_run_s_is_told_key_by_key(delivered, tmp_path):
    found = delivered.validate(data=changed(delivered, tmp_path, gate={"max_drop": 0.02}, description="says nothing"))
    told = [str(finding) for finding in by_name(found)["sources"].findings]
    assert any(re.search(r"file recipe.yaml: gate is .*'max_drop': 0.05.*, the recipe that is given says .*'max_drop': 0.02", text) for text in told)
    assert not any("description" in text for text in told)
    assert any("the limits of its gates is [0.05], now [0.02]" in str(finding) for finding in by_name(found)["report"].findings)


@pytest.mark.slow
def test_an_artifact_apart_from_its_run_is_held_to_an_fp32_model(cli, delivered, tmp_path):
    place = shutil.copytree(delivered.folder / "artifacts/onnxruntime/int8", tmp_path / "artifact")
    told = ["--baseline", delivered.recipe.with_name("digits.onnx"), "--data", delivered.recipe, "--work", delivered.work]
    outcome = cli("validate", place, *told, "--json")
    found = Validation.model_validate_json(outcome.out)
    assert outcome.code == 0, found.sentence
    skipped = {check.check for check in found.checks if check.status == "skipped"}
    assert {"identity", "plan", "agreement", "report", "files"} <= skipped
    assert {by_name(found)[name].status for name in ("artifact-files", "reload", "contract", "audit", "gate", "requests", "load")} == {"ok"}
    assert by_name(found)["audit"].said.startswith("5 of 5 layers in int8; ")
    refused = cli("validate", place, "--baseline", delivered.recipe.with_name("digits.onnx"))
    assert (refused.code, "name a recipe with --data" in refused.err) == (2, True)


@pytest.mark.slow
def test_fp32_under_the_name_of_an_artifact_apart_from_its_run_is_found(delivered, tmp_path):
    place = shutil.copytree(delivered.folder / "artifacts/onnxruntime/int8", tmp_path / "artifact")
    shutil.copyfile(delivered.folder / "artifacts/onnxruntime/fp32/model.onnx", place / "model.onnx")
    artifact = Artifact.load(place / "artifact.json")
    artifact.model_copy(update={"files": {"model.onnx": digest_of_file(place / "model.onnx")}}).save(place / "artifact.json")
    found = delivered.validate(place, baseline=delivered.recipe.with_name("digits.onnx"))
    assert found.verdict == "fail"
    [finding] = found.findings
    assert str(finding) == "file model.onnx: is called int8, and the engine runs none of its layers in int8: they run in fp32"


@pytest.mark.parametrize(
    ("folder", "told", "message"),
    [
        ("nowhere", {}, "no such folder"),
        ("empty", {}, "holds no run"),
        ("run", {"candidate": "int7"}, "no candidate is called 'int7'"),
    ],
)
def test_what_cannot_be_validated_is_refused(folder, told, message, delivered, tmp_path):
    (tmp_path / "empty").mkdir()
    places = {"nowhere": tmp_path / "nowhere", "empty": tmp_path / "empty", "run": delivered.folder}
    with pytest.raises(RunError, match=message):
        delivered.validate(places[folder], **told)


@pytest.mark.slow
def test_a_run_of_which_nothing_passed_is_refused_unless_a_candidate_is_named(delivered, tmp_path):
    copy = delivered.copy(tmp_path / "copy")
    report = load_report(copy)
    report.model_copy(update={"candidates": tuple(row.model_copy(update={"verdict": "fail"}) for row in report.candidates)}).save(copy / "report.json")
    with pytest.raises(RunError, match="no candidate of this run has passed\nhint: name one with --candidate"):
        delivered.validate(copy)
    found = delivered.validate(copy, candidate="int8")
    assert any("verdict is fail, now pass" in str(finding) for finding in found.findings)


def test_every_check_is_documented_and_has_its_turn():
    made = [CHECKS.make(kind) for kind in CHECKS]
    assert len({check.order for check in made}) == len(made)
    assert all(check.title and (type(check).__doc__ or "").strip() and check.scope in {"run", "candidate"} for check in made)


def test_every_command_prints_json():
    import typer.main

    from quant.cli import app

    group = typer.main.get_command(app)
    commands = dict(group.commands) | dict(group.commands["recipes"].commands)
    without = sorted(name for name, command in commands.items() if not any("--json" in parameter.opts for parameter in command.params))
    assert without == []


def fallen(delivered, folder, **changes):
    recipe = changed(delivered, folder, **{"schemes": [{"kind": "int4"}], "limits": CONFTEST_RECIPE_LIMITS, **changes})
    return quant.run(recipe, output=folder / "out"), recipe


def test_where_nothing_passes_the_fallback_is_delivered_with_the_reason_and_validates(delivered, tmp_path):
    done, recipe = fallen(delivered, tmp_path, on_fail="fp16", gate={"max_drop": 0.01})
    [one] = done.report.delivered
    assert (done.report.verdict, one.scheme, one.artifact) == ("pass", "fp16", "artifacts/onnxruntime/fp16")
    assert re.fullmatch(r"int4 (fails|is inconclusive)", one.reason)
    assert re.fullmatch(r"Pass: on onnxruntime the fallback fp16 is delivered \(int4 \S.*\)\.", done.report.sentence)
    assert (Path(done.folder) / one.artifact / "model.onnx").is_file()
    found = quant.validate(done.folder, data=recipe)
    assert found.verdict == "pass", found.sentence
    assert {check.candidate for check in found.checks} == {"", "fp16 on onnxruntime"}


@pytest.mark.slow
def test_fp32_stands_behind_every_fallback(delivered, tmp_path):
    done, recipe = fallen(delivered, tmp_path, on_fail=["int8-dynamic"], gate={"max_drop": 0.0})
    [one] = done.report.delivered
    assert (done.report.verdict, one.scheme, one.artifact) == ("pass", "fp32", "artifacts/onnxruntime/fp32")
    assert re.fullmatch(r"int4 \S.*; int8-dynamic \S.*", one.reason)
    assert quant.validate(done.folder, data=recipe).verdict == "pass"


@pytest.mark.slow
def test_a_fallback_is_not_tried_where_something_passes_and_needs_a_gate(delivered, tmp_path):
    done, _ = fallen(delivered, tmp_path, schemes=["int8"], on_fail="fp16")
    assert [row.scheme for row in done.report.candidates] == ["int8"]
    assert done.report.sentence.startswith("Pass: int8 on onnxruntime keeps accuracy")
    with pytest.raises(QuantError, match="`on_fail` says what is delivered when no candidate passes"):
        fallen(delivered, tmp_path, on_fail="fp16", evaluation={"metrics": []})


@pytest.mark.slow
def test_when_fp32_itself_fails_nothing_is_delivered(delivered, tmp_path, monkeypatch):
    from quant.engine import delivering

    monkeypatch.setattr(delivering, "_fault_of_fp32", lambda *_: "in its engine it does not pass the gate against itself")
    done, _ = fallen(delivered, tmp_path, on_fail="fp32", gate={"max_drop": 0.0})
    assert done.report.verdict == "fail"
    assert re.fullmatch(r"Fail: on onnxruntime nothing can be delivered \(int4 .*; FP32 itself fails: in its engine .*\)\.", done.report.sentence)
