"""Plans that mix formats, from the recipe to the report and back from an edited file."""

import json

import numpy as np
import pytest
import yaml

import quant

DEAD = 7
"""A hidden unit that is always 0: its weights in the second layer change nothing, but are all that one scale for the whole weight sees."""
SPLITS = {"splits": {"calibration": 64, "search": 300, "evaluation": 700}}
SCHEME = {"kind": "int8", "per_channel": False}


@pytest.fixture
def fragile(project, digits):
    """A project whose second layer does not survive INT8, and whose first does."""
    w0, b0, w1 = (digits.weights[name].copy() for name in ("w0", "b0", "w1"))
    w0[:, DEAD], b0[DEAD], w1[DEAD] = 0, -1, 1000
    project.weights(w0=w0, b0=b0, w1=w1)

    def write(plan=None, **changes):
        # By size, which is the same on every machine; by time the plan for so small a network would be chance.
        project.write({"data": SPLITS, "schemes": [SCHEME], "transforms": [], "plan": {"minimize": "size", **(plan or {})}, **changes})
        return project

    write()
    project.rewrite = write
    return project


@pytest.fixture
def ran(fragile):
    """Its run."""
    return quant.run(fragile.recipe, output=fragile.output)


def by_scheme(report):
    return {candidate.scheme: candidate for candidate in report.candidates}


def test_the_layer_that_breaks_is_left_out_and_the_mixed_plan_passes_where_int8_fails(ran, fragile):
    found = by_scheme(ran.report)
    assert (found["int8"].verdict, found["mixed"].verdict) == ("fail", "pass")
    assert {c.layer: c.format for c in found["mixed"].plan} == {"dense/first": "int8", "dense/second": "fp32"}
    assert all(row.agrees for row in found["mixed"].audit)
    assert found["int8"].size_ratio < found["mixed"].size_ratio < 1
    [row] = ran.report.timings.mixing
    assert [(step.passes, step.quantized) for step in row.steps][-1] == (True, 1)
    assert [out.layer for out in row.left_out] == ["dense/second"]
    first, second, *more = row.left_out[0].why
    # By hand: 480 weights of 4 bytes become 480 codes and 10 biases of 4 bytes stay, with one scale of 4 bytes for the whole weight: 1,436 bytes less.
    assert first.startswith("In int8 it would save 1.44e+03 bytes, and add ")
    assert first.endswith("100 % of what there would be.")
    assert second == "100 % of that comes from its weights: adaround might help, bias-correction might help."
    assert more == []
    assert row.uniform[0].name == "int8"
    assert "Mixed precision on onnxruntime" in (fragile.output / "report.html").read_text(encoding="utf-8")
    assert "## Mixed precision on onnxruntime" in (fragile.output / "report.md").read_text(encoding="utf-8")


def test_the_joint_error_is_what_the_effects_add_up_to(ran):
    """Two layers of which one does nearly everything: to first order the joint error is the sum, and the sketch is within 3 of its standard errors."""
    [row] = ran.report.timings.mixing
    last = row.steps[-1]
    assert abs(last.predicted - last.measured) <= 3 * np.hypot(last.predicted_error, last.measured_error)


def test_a_second_run_measures_nothing_and_says_the_same(ran, fragile):
    again = quant.run(fragile.recipe, output=fragile.output).report
    assert set(again.timings.stages.values()) == {0.0}
    assert again.timings.mixing == ran.report.timings.mixing
    assert again.results_digest == ran.report.results_digest


def test_a_plan_is_written_edited_and_carried_out(fragile, cli, tmp_path):
    path = tmp_path / "plan.yaml"
    found = cli("plan", fragile.recipe, "--output", path)
    assert found.code == 0, found
    assert "1 of 2 layers quantized" in found.out
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert written["layers"] == {"dense/first": "int8", "dense/second": "fp32"}
    path.write_text(
        path.read_text(encoding="utf-8").replace('"dense/first": int8', '"dense/first": fp32').replace('"dense/second": fp32', '"dense/second": int8')
    )
    outcome = cli("apply", fragile.recipe, "--plan", path, "--output", fragile.output, "--json")
    candidates = {c["scheme"]: c for c in json.loads(outcome.out)["candidates"]}
    assert outcome.code == 1, "the layer that breaks is in INT8 now"
    assert candidates["int8"]["reason"] == "the plan in plan.yaml is carried out"
    assert {c["layer"]: c["format"] for c in candidates["mixed"]["plan"]} == {"dense/first": "fp32", "dense/second": "int8"}


def test_a_profile_is_shown_and_written(fragile, cli, tmp_path):
    found = cli("profile", fragile.recipe, "--output", tmp_path / "profile.json")
    assert found.code == 0, found
    assert found.out.index("dense/second") < found.out.index("dense/first"), "the most sensitive first"
    profile = quant.SensitivityProfile.load(tmp_path / "profile.json")
    assert profile.effect("dense/second", "int8").value > 10 * profile.effect("dense/first", "int8").value
    assert profile.effect("dense/second", "int8", "weight").value > 0.9 * profile.effect("dense/second", "int8").value


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text.replace("dense/first", "dense/frist"), "plan.yaml:7: the model has no layer 'dense/frist'\nhint: did you mean 'dense/first'"),
        (lambda text: text.replace(": int8", ": int4"), "plan.yaml:7: layer 'dense/first' cannot run in 'int4' here"),
        (lambda text: text.replace("model: ", "model: 00"), "plan.yaml:4: the plan is of another model (00"),
        (lambda text: text.replace("version: 1", "version: 2"), "plan.yaml:3: version is 2"),
        (lambda text: text.replace("version: 1", "version: true"), "plan.yaml:3: version is true"),
        (lambda text: text.replace("version: 1\n", ""), "plan.yaml: version is not given"),
        (lambda text: text.replace("model: ", "# model: "), "plan.yaml: does not say which model the plan is of: `model` is not given"),
        (lambda text: text.replace(": int8", ": [int8]"), "plan.yaml:7: the format of layer 'dense/first' is [\"int8\"]"),
        (lambda text: text.replace(": int8", ":"), "plan.yaml:7: the format of layer 'dense/first' is not given"),
        (lambda text: text.replace(": int8", ": fp32"), "plan.yaml:6: all layers are in fp32: the plan quantizes nothing"),
        (lambda text: text[: text.index("layers:")] + "layers: {}\n", "plan.yaml:6: all layers are in fp32: the plan quantizes nothing"),
        (lambda text: text[: text.index("layers:")] + "layers: [int8]\n", "plan.yaml:6: `layers` is to map names of layers to formats"),
        (lambda text: text.replace("version: 1", "versoin: 1"), "plan.yaml:3: unknown key 'versoin'\nhint: did you mean 'version'?"),
        (lambda _: "- int8\n", "plan.yaml: a plan is a mapping"),
        (lambda text: text[: text.index("layers:")], "plan.yaml: `layers` is to map names of layers to formats"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_with_its_line(fragile, cli, tmp_path, change, told):
    path = tmp_path / "plan.yaml"
    assert cli("plan", fragile.recipe, "--output", path).code == 0
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    outcome = cli("apply", fragile.recipe, "--plan", path, "--output", fragile.output)
    assert outcome.code == 2
    assert f"{tmp_path}/{told}" in outcome.err
    assert not (fragile.output / "manifest.json").exists()


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"keep": {"dense/frist": "int8"}}, "pattern 'dense/frist' matches no layer\nhint: did you mean 'dense/first'"),
        ({"keep": {"dense/first": "int9"}}, "layer 'dense/first' cannot be kept in 'int9'\nhint: on onnxruntime it can run in int8, fp32"),
        ({"keep": {"dense/*": "int8", "dense/first": "fp32"}}, "layer 'dense/first' is kept in int8 by 'dense/*', and in fp32 by 'dense/first'"),
        (
            {"keep": {"dense/first": "int8", "dense/second": "fp32"}, "together": [["dense/*"]]},
            "layers dense/first and dense/second move together, and are kept in int8 and in fp32",
        ),
        ({"together": [["dense/first"]]}, "dense/first names no two layers that could move together"),
        ({"together": [["nope"]]}, "pattern 'nope' matches no layer"),
        ({"apart": ["nope"]}, "pattern 'nope' matches no layer"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_what_is_kept_or_bound_and_cannot_be_is_refused_before_any_long_work(fragile, cli, monkeypatch, *, plan, told, command):
    from quant.engine.candidates import Workshop

    fragile.rewrite(plan=plan)
    monkeypatch.setattr(Workshop, "evaluate_baseline", lambda _self: pytest.fail("FP32 was evaluated"))
    monkeypatch.setattr(Workshop, "calibrate", lambda *_, **__: pytest.fail("calibrated"))
    outcome = cli(command, fragile.recipe, "--output", fragile.folder / "made")
    assert (outcome.code, told in outcome.err) == (2, True), outcome.err
    assert outcome.err.startswith(f"error: {fragile.recipe}:")
    assert not list(fragile.folder.glob("made/*"))


def test_formats_of_which_a_plan_has_one_alone_are_not_both_kept(project, cli):
    pytest.importorskip("tensorrt_rtx")
    kept = {"dense/first": "int8", "dense/second": "fp8"}
    project.write({"data": SPLITS, "schemes": ["int8", "fp8"], "targets": ["tensorrt-rtx"], "transforms": [], "plan": {"keep": kept}})
    outcome = cli("plan", project.recipe, "--output", project.folder / "plan.yaml")
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {project.recipe}:")
    assert "layers are kept in fp8 and in int8, of which a plan has one alone\nhint: keep all layers in one of them" in outcome.err


@pytest.mark.parametrize("command", ["plan", "profile"])
def test_what_looks_for_a_plan_needs_search_samples_whatever_the_recipe_carries_out(project, cli, command):
    project.write({"plan": {"file": "plan.yaml"}})
    outcome = cli(command, project.recipe, "--output", project.folder / "made")
    assert outcome.code == 2
    assert "on search samples, and there are none\nhint: give `data.splits.search`" in outcome.err
    assert outcome.err.startswith(f"error: {project.recipe}:")


def test_a_plan_that_is_not_there_is_told(fragile, cli, tmp_path):
    outcome = cli("apply", fragile.recipe, "--plan", tmp_path / "none.yaml", "--output", fragile.output)
    assert (outcome.code, "none.yaml: no such plan" in outcome.err) == (2, True)


def test_a_budget_that_needs_everything_in_fp32_ends_as_no_quantization_fits(fragile, cli):
    fragile.rewrite(evaluation={"metrics": []}, plan={"max_error": 1e-12})
    report = quant.run(fragile.recipe, output=fragile.output).report
    mixed = by_scheme(report)["mixed"]
    assert (mixed.status, mixed.reason) == ("not applicable", "No quantization fits: no plan passes on the search samples.")
    outcome = cli("plan", fragile.recipe, "--output", fragile.folder / "plan.yaml")
    assert outcome.code == 1
    assert "No quantization fits" in outcome.out
    assert not (fragile.folder / "plan.yaml").exists()


def test_without_metrics_the_error_of_the_outputs_is_the_budget(fragile):
    fragile.rewrite(evaluation={"metrics": []}, plan={"max_error": 0.01})
    mixed = by_scheme(quant.run(fragile.recipe, output=fragile.output).report)["mixed"]
    assert {c.layer: c.format for c in mixed.plan} == {"dense/first": "int8", "dense/second": "fp32"}


def test_within_a_size_the_most_accurate_plan_is_taken(fragile):
    """The first layer has 3,072 of 3,552 weights: without it nothing comes below half of FP32's size."""
    fragile.rewrite(plan={"within": {"size": 0.5}})
    report = quant.run(fragile.recipe, output=fragile.output).report
    assert {c.layer: c.format for c in by_scheme(report)["mixed"].plan} == {"dense/first": "int8", "dense/second": "fp32"}
    assert [step.action for step in report.timings.mixing[0].steps] == ["front", "look"]


@pytest.mark.parametrize(
    ("plan", "code", "told"),
    [
        ({"within": {"size": 2.0}}, 1, "Nothing is to be quantized: FP32 itself keeps to the budgets, and is the most accurate."),
        ({"within": {"size": 0.5}, "max_error": 1e-12}, 1, "the most accurate plan within the budgets does not pass on the search samples (error "),
        ({"within": {"size": 0.5}}, 0, "The most accurate plan within the budgets passes: 1 of 2 layers quantized, found by measuring 1 plan."),
        ({"within": {"size": 0.001}}, 2, "no plan keeps to the budgets: size cannot be 14.44: at least "),
    ],
)
def test_budgets_end_in_words_whatever_they_leave(fragile, cli, plan, code, told):
    fragile.rewrite(plan=plan)
    outcome = cli("plan", fragile.recipe, "--output", fragile.folder / "plan.yaml")
    assert outcome.code == code, outcome
    assert told in (outcome.out if code < 2 else outcome.err)
    assert (fragile.folder / "plan.yaml").exists() == (code == 0)
    if code == 1:
        assert by_scheme(quant.run(fragile.recipe, output=fragile.output).report)["mixed"].status == "not applicable"
    if code == 2:
        assert outcome.err.startswith(f"error: {fragile.recipe}:")


def test_of_each_format_the_first_scheme_is_mixed_that_finds_something_to_quantize(sturdy):
    """As where a model has convolutions, which `int8-dynamic` leaves alone on this engine, and `int8` is listed behind it."""
    project = sturdy({}, schemes=[{"kind": "int8", "name": "nothing", "exclude": ["*"]}, "int8"])
    found = quant.plan(project.recipe)
    assert set(found.choices.values()) == {"int8"}
    assert found.row.notes == (), "the format is not said to be left out"


def test_one_search_sample_is_too_few_to_tell_how_sure_an_effect_is(project, cli):
    project.write({"data": {"splits": {"calibration": 64, "search": 1, "evaluation": 700}}, "plan": {}})
    for command in ("run", "plan", "profile"):
        outcome = cli(command, project.recipe, "--output", project.folder / "made")
        assert (outcome.code, "1 search sample: how sure an effect is cannot be told\nhint: give at least 2" in outcome.err) == (2, True), outcome


@pytest.mark.parametrize("command", ["plan", "profile"])
def test_the_recipe_is_not_written_over(fragile, cli, command):
    before = fragile.recipe.read_bytes()
    outcome = cli(command, fragile.recipe, "--output", fragile.recipe)
    assert (outcome.code, f"error: {fragile.recipe}: would be written over, and is read" in outcome.err) == (2, True)
    assert fragile.recipe.read_bytes() == before


@pytest.mark.parametrize("command", ["plan", "profile"])
def test_a_target_on_which_nothing_can_be_mixed_is_told_with_a_way_out(project, cli, command):
    project.write({"data": SPLITS, "schemes": ["fp16"]})
    outcome = cli(command, project.recipe, "--output", project.folder / "made")
    assert outcome.code == 2
    assert "error: target onnxruntime: no format is left to mix: fp16: it wins no time here" in outcome.err
    assert "hint: list a scheme whose format can be mixed there" in outcome.err
    outcome = cli(command, project.recipe, "--target", "onnx", "--output", project.folder / "made")
    assert (outcome.code, outcome.err.startswith(f"error: {project.recipe}")) == (2, True)
    assert "the recipe has no target 'onnx'\nhint: " in outcome.err
    assert not (project.folder / "made").exists()


def test_a_layer_can_be_kept_in_a_format(fragile):
    fragile.rewrite(plan={"keep": {"dense/second": "int8"}})
    report = quant.run(fragile.recipe, output=fragile.output).report
    found = by_scheme(report)["mixed"]
    assert found.status == "not applicable"
    assert found.reason == "No quantization fits: no plan passes on the search samples."


def test_layers_that_are_bound_in_the_recipe_move_as_one(fragile):
    fragile.rewrite(plan={"together": [["dense/*"]]})
    assert by_scheme(quant.run(fragile.recipe, output=fragile.output).report)["mixed"].status == "not applicable"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data": {"splits": {"search": None}}}, "a plan is looked for on search samples, and there are none"),
        ({"schemes": "auto"}, "`schemes: auto` stops at the first scheme that passes, and leaves nothing to mix"),
        ({"schemes": [{"kind": "int8", "name": "mixed"}]}, "no scheme can be called 'mixed'"),
        ({"plan": {"schemes": ["int9"]}}, "there is no scheme 'int9' to mix"),
        ({"schemes": ["int8", {"kind": "int8", "name": "other"}], "plan": {"schemes": ["int8", "other"]}}, "two schemes of int8 are to be mixed"),
        ({"schemes": ["int8-qat"]}, "no scheme can be mixed: all of them train"),
        ({"schemes": ["int8", "int8-qat"], "plan": {"schemes": ["int8-qat"]}}, "scheme 'int8-qat' trains, and cannot be mixed with others"),
        ({"evaluation": {"metrics": []}}, "without metrics there is nothing to tell a good plan by"),
        ({"plan": {"estimator": "exakt"}}, "unknown estimator 'exakt'"),
        ({"plan": {"costs": {"kind": "roofline", "gpu": "L5"}}}, "no GPU 'L5' is known"),
        ({"plan": {"costs": "bytes", "minimize": "time"}}, "the cost model 'bytes' prices size, and not time"),
    ],
)
def test_a_plan_that_contradicts_the_recipe_is_refused(project, cli, changes, told):
    project.write({"data": SPLITS, "plan": {"minimize": "size"}, **{k: v for k, v in changes.items() if k != "data"}})
    if "data" in changes:
        project.write({"data": {"splits": {"calibration": 64, "evaluation": 700}}, "plan": {}})
    outcome = cli("run", project.recipe, "--output", project.output)
    assert outcome.code == 2
    assert told in outcome.err


@pytest.fixture
def sturdy(project):
    """Writes a recipe of a project that passes in INT8 throughout."""

    def write(plan, **changes):
        project.write({"data": SPLITS, "transforms": [], "plan": {"minimize": "size", **plan}, **changes})
        return project

    return write


def test_a_scheme_alone_that_passes_does_not_take_what_is_kept_with_it(sturdy):
    project = sturdy({"keep": {"dense/second": "fp32"}})
    found = by_scheme(quant.run(project.recipe, output=project.output).report)
    assert found["int8"].verdict == "pass"
    assert {c.layer: c.format for c in found["mixed"].plan} == {"dense/first": "int8", "dense/second": "fp32"}


def test_within_a_budget_the_most_accurate_plan_stays_though_a_cheaper_scheme_passes(sturdy):
    """The second layer alone has 480 of 3,552 weights: leaving it in FP32 keeps to half of FP32's size, and has the smaller error."""
    project = sturdy({"within": {"size": 0.5}})
    report = quant.run(project.recipe, output=project.output).report
    found = by_scheme(report)
    assert found["int8"].verdict == "pass"
    [row] = report.timings.mixing
    errors = {e.layer: e.value for e in row.effects}
    left = "dense/second"  # the first layer in FP32 would be 0.9 of FP32's size
    assert {c.layer: c.format for c in found["mixed"].plan} == {"dense/first": "int8", left: "fp32"}
    assert errors[left] > 0


def test_bits_can_be_a_budget(sturdy):
    project = sturdy({"minimize": "bits", "within": {"bits": 0.26}})
    found = by_scheme(quant.run(project.recipe, output=project.output).report)
    assert {c.format for c in found["mixed"].plan} == {"int8"}, "32 bits on average are 8 only where all are"


def test_a_plan_file_is_read_before_any_long_work(sturdy, cli, tmp_path, monkeypatch):
    from quant.engine.candidates import Workshop

    project = sturdy({})
    path = tmp_path / "plan.yaml"
    assert cli("plan", project.recipe, "--output", path).code == 0
    path.write_text(path.read_text(encoding="utf-8").replace("dense/first", "dense/frist"), encoding="utf-8")
    monkeypatch.setattr(Workshop, "evaluate_baseline", lambda _self: pytest.fail("FP32 was evaluated"))
    outcome = cli("apply", project.recipe, "--plan", path, "--output", project.output)
    assert (outcome.code, "the model has no layer 'dense/frist'" in outcome.err) == (2, True)


def test_floating_formats_that_win_no_time_are_said_to_be_no_part_of_a_plan(sturdy):
    project = sturdy({}, schemes=["fp16", "int8"])
    report = quant.run(project.recipe, output=project.output).report
    told = "fp16 is not mixed: it wins no time here: ONNX Runtime computes FP16 in FP32 on this CPU, with casts around it"
    assert told in report.timings.mixing[0].notes


def test_products_with_weights_of_4_bits_are_multiplied_in_what_was_measured(project, digits):
    """The second layer reads one huge value beside small ones: rounded to INT8 by blocks, activations would cost far more than 4 bits of weights."""
    w0, b0, w1 = (digits.weights[name].copy() for name in ("w0", "b0", "w1"))
    w0[:, DEAD], b0[DEAD], w1[DEAD] = 0, 1e5, 0
    project.weights(w0=w0, b0=b0, w1=w1)
    int4 = {"kind": "int4", "block_size": 16, "embeddings": False}
    plan = {"minimize": "size", "max_error": 10.0}
    project.write({"data": SPLITS, "schemes": [int4], "transforms": [], "evaluation": {"metrics": []}, "plan": plan})
    [_, mixed] = quant.run(project.recipe, output=project.output).report.candidates
    reasons = {c.layer: c.reason for c in mixed.plan}
    assert "multiplied in FP32: in INT8, activations cost" in reasons["dense/second"]


def test_engines_built_elsewhere_are_planned_by_data_sheet(sturdy):
    pytest.importorskip("tensorrt_rtx")
    project = sturdy({"minimize": "time"}, schemes=["fp16", "int8"], targets=["tensorrt-rtx"])
    report = quant.run(project.recipe, output=project.output).report
    [row] = report.timings.mixing
    assert (row.estimated, row.unit, row.formats) == (True, "ms", ("int8",))
    assert "fp16 is not mixed: it is what layers run in here that a plan leaves out, called fp32 there" in row.notes
    assert row.cost.startswith("L4: ")
    assert by_scheme(report)["mixed"].verdict == "pass"
