"""A saved profile, priced for another target without measuring anything anew."""

import json
import re

import pytest
import yaml

import quant
from quant.engine.candidates import Workshop
from quant.engine.mixing.provenance import codes_of
from quant.engine.mixing.searching import Search
from quant.targets import TARGETS

SPLITS = {"splits": {"calibration": 64, "search": 300, "evaluation": 700}}


@pytest.fixture
def saved(project, cli):
    """A recipe for ONNX Runtime and OpenVINO, and the profile that was saved on the first."""
    pytest.importorskip("openvino")
    project.write({"data": SPLITS, "transforms": [], "targets": ["onnxruntime", "openvino"], "plan": {"minimize": "size", "max_error": 0.01}})
    found = cli("profile", project.recipe, "--output", project.folder / "profile.json")
    assert found.code == 0, found
    return project


def again(project, cli, *more, target="onnxruntime"):
    told = ("plan", project.recipe, "--profile", project.folder / "profile.json", "--target", target, "--output", project.folder / "plan.yaml")
    return cli(*told, *more)


def change(project, key, value):
    """The saved profile with one of its keys changed; without it where the value is None."""
    file = project.folder / "profile.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["keys"] = {k: v for k, v in {**stored["keys"], key: value}.items() if v is not None}
    file.write_text(json.dumps(stored), encoding="utf-8")


def test_a_plan_is_made_of_the_profile_and_nothing_is_measured(saved, cli, monkeypatch):
    monkeypatch.setattr(Search, "measure", lambda *_: pytest.fail("a plan was measured"))
    found = again(saved, cli, "--json")
    assert found.code == 0, found
    told = json.loads(found.out)
    effects = {(e["layer"], e["format"]): e["value"] for e in told["search"]["effects"]}
    assert sum(effects[layer, f] for layer, f in told["choices"].items() if f != "fp32") <= 0.01
    assert "The cheapest of the plans predicted to have an error of at most 0.01: " in told["search"]["ended"]
    assert told["search"]["steps"] == []
    assert yaml.safe_load((saved.folder / "plan.yaml").read_text(encoding="utf-8"))["layers"] == told["choices"]


def test_prices_are_those_of_the_other_target_and_effects_those_of_the_profile(project, monkeypatch):
    """TensorRT and TensorRT-RTX write INT8 alike: what was measured for one is priced for the other by the data sheet of a GPU."""
    pytest.importorskip("tensorrt_rtx")
    targets = ["tensorrt", "tensorrt-rtx"]
    project.write({"data": SPLITS, "transforms": [], "targets": targets, "plan": {"minimize": "time", "max_error": 0.01}})
    profile = quant.profile(project.recipe, target="tensorrt")
    profile.save(project.folder / "profile.json")
    monkeypatch.setattr(Search, "measure", lambda *_: pytest.fail("a plan was measured"))
    monkeypatch.setattr(Workshop, "build_baseline", lambda *_: pytest.fail("an engine was built"))
    found = quant.plan(project.recipe, target="tensorrt-rtx", profile=project.folder / "profile.json")
    assert (found.target, found.row.estimated) == ("tensorrt-rtx", True)
    assert found.row.cost.startswith("L4: ")
    assert {(e.layer, e.format): e.value for e in found.row.effects} == {(e.layer, e.format): e.value for e in profile.effects if e.part == "both"}


def test_an_engine_that_writes_other_codes_is_refused_with_both(saved, cli):
    found = again(saved, cli, target="openvino")
    told = " ".join(found.err.split())
    one, other = (codes_of(TARGETS.make(kind).dialect) for kind in ("onnxruntime", "openvino"))
    assert found.code == 2
    assert f"profile.json: its effects are those of {one}, and openvino has {other}: what rounding does is not the same there" in told


def test_a_plan_of_another_target_says_how_much_error_is_allowed(saved, cli):
    like = saved.folder / "like.yaml"
    model = json.loads((saved.folder / "profile.json").read_text(encoding="utf-8"))["keys"]["model"]
    like.write_text(f'version: 1\nmodel: {model}\ntarget: elsewhere\nlayers:\n  "dense/second": int8\n', encoding="utf-8")
    found = again(saved, cli, "--like", like, "--json")
    told = json.loads(found.out)
    assert "predicted to be no worse than like.yaml" in told["search"]["ended"]
    effects = {e["layer"]: e["value"] for e in told["search"]["effects"]}
    assert sum(effects[layer] for layer, f in told["choices"].items() if f == "int8") <= effects["dense/second"] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("model", "0" * 64, "profile.json: is of another model (000000000000…, and now it is "),
        ("samples", "0" * 64, "profile.json: was found on other search samples (000000000000…"),
        ("calibration", "0" * 64, "profile.json: was calibrated on other samples (000000000000…"),
        ("options", "0" * 64, "profile.json: was made with other options of schemes, calibrator or estimator"),
        ("libraries", "0" * 64, "profile.json: was made with other versions of libraries"),
        ("code", "0" * 64, "profile.json: was made by another version of this toolkit"),
        ("codes", "int8 symmetric activations, int8 symmetric weights", "and onnxruntime has uint8"),
        ("places", "0" * 64, "its target rounds activations at other places than onnxruntime does"),
        ("calibration", None, "profile.json: does not say what it was made from (calibration is missing)"),
    ],
)
def test_a_profile_that_is_stale_or_of_other_codes_is_refused(saved, cli, key, value, told):
    change(saved, key, value)
    found = again(saved, cli)
    assert found.code == 2
    assert told in " ".join(found.err.split())
    assert "`quant profile RECIPE --target onnxruntime --output profile.json` makes it anew" in " ".join(found.err.split())


def test_a_profile_of_the_same_recipe_with_other_data_is_refused(saved, cli):
    found = again(saved, cli, "--set", "data.splits.calibration=65")
    assert (found.code, "was calibrated on other samples" in found.err or "other search samples" in found.err) == (2, True)


def test_without_anything_that_says_what_is_allowed_no_plan_is_made(saved, cli):
    found = again(saved, cli, "--set", "plan.max_error=null")
    assert found.code == 2
    assert "nothing is measured, so that gates cannot tell a good plan" in " ".join(found.err.split())


def test_an_error_that_nothing_keeps_to_ends_as_no_quantization(saved, cli):
    found = again(saved, cli, "--set", "plan.max_error=1e-15")
    assert (found.code, "No quantization is predicted to have an error of at most 1e-15." in " ".join(found.out.split())) == (1, True)


def test_files_that_are_not_there_are_told(saved, cli):
    assert "nope.yaml: no such file" in again(saved, cli, "--like", saved.folder / "nope.yaml").err
    outcome = cli("plan", saved.recipe, "--like", saved.folder / "profile.json")
    assert (outcome.code, "`like` is for plans out of a profile" in outcome.err) == (2, True)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda text: text[: len(text) // 2], "not a SensitivityProfile: Invalid JSON: EOF"),
        (lambda _: "", "not a SensitivityProfile: Invalid JSON: EOF"),
        (lambda text: text.replace('"samples": ', '"samples": "few", "more": '), "not a SensitivityProfile: samples: Input should be a valid integer"),
        (lambda text: text.replace("dense/first", "dense/frist"), "has no effect of layer 'dense/first' in int8\nhint: `quant profile RECIPE"),
        (lambda text: re.sub(r'"value": [-0-9.e]+', '"value": NaN', text), "the effect of layer 'dense/first' in int8 is nan ± "),
        (lambda text: re.sub(r'"value": [-0-9.e]+', '"value": 1e308', text), "the effect of layer 'dense/first' in int8 is 1e+308 ± "),
        (lambda text: re.sub(r'"standard_error": [-0-9.e]+', '"standard_error": -1', text), "the effect of layer 'dense/first' in int8 is "),
    ],
)
def test_a_profile_that_was_cut_or_edited_is_refused_with_its_file(saved, cli, edit, told):
    file = saved.folder / "profile.json"
    file.write_text(edit(file.read_text(encoding="utf-8")), encoding="utf-8")
    outcome = again(saved, cli)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {file}: {told}"), outcome.err
    assert not (saved.folder / "plan.yaml").exists()


def test_a_profile_is_not_written_over_by_the_plan_of_it(saved, cli):
    outcome = again(saved, cli, "--output", saved.folder / "profile.json")
    assert (outcome.code, "profile.json: would be written over, and is read" in outcome.err) == (2, True)
