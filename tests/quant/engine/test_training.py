"""A scheme that trains, in a run: its data, what the report says of it, and what is refused before any work."""

from dataclasses import dataclass

import numpy as np
import pytest

import quant
from quant.engine.bind import Bound, bind
from quant.engine.training import training_obstacle
from quant.errors import DataError
from quant.recipe.load import load_recipe

SPLITS = {"train": 600, "calibration": 64, "search": 100, "evaluation": 700}


def qat(**options):
    return {"kind": "int8-qat", "epochs": 1, "batch_size": 64, "learning_rate": 1e-3, **options}


@pytest.fixture(scope="module")
def trained(make_project, tmp_path_factory):
    """A run that trains: in eight bits, and in three for study."""
    from quant.engine import timing

    folder = tmp_path_factory.mktemp("trained")
    project = make_project(folder / "project")
    project.write({"data": {"splits": SPLITS}, "schemes": [qat(), qat(name="study", bits=3)]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUANT_CACHE", str(folder / "cache"))
        patch.setattr(timing, "measure_first_runs", lambda *_arguments, **_options: {})
        return project, quant.run(project.recipe, output=project.output).report, folder / "cache"


def test_the_report_tells_what_was_trained_on_what_and_what_it_brought(trained):
    project, report, _ = trained
    row = report.candidates[0].training
    assert (row.role, row.samples, row.kept, row.weights, row.scales) == ("train", 600, 1, 4, 4)
    assert row.loss == "cross-entropy of output 'logits' against labels"
    assert [set(epoch.metrics) for epoch in row.epochs] == [{"accuracy"}] * 2
    for name in ("report.html", "report.md"):
        text = (project.output / name).read_text(encoding="utf-8")
        assert "4 weights and biases and 4 scales were trained on 600 train samples" in text
        assert "cross-entropy of output" in text


def test_an_int8_artifact_predicts_what_the_twin_did_and_is_audited(trained):
    """The metric of the twin on the search samples is that of the artifact on them: at most a sample in a hundred falls to another side."""
    from quant.data.load import load_data
    from quant.graph.runtime import Runtime
    from quant.recipe.load import load_recipe

    project, report, _ = trained
    candidate = report.candidates[0]
    assert {row.runs for row in candidate.audit} == {"int8"}
    loaded = load_recipe(project.recipe)
    samples = list(load_data(loaded.recipe.data, base=loaded.path, where=loaded.where).roles["search"])
    x = np.stack([next(iter(s.feeds[0].values())) for s in samples])
    logits = Runtime(project.output / candidate.artifact / "model.onnx").run({"x": x})["logits"]
    found = np.mean(logits.argmax(axis=1) == [s.label for s in samples])
    assert candidate.training.epochs[candidate.training.kept].metrics["accuracy"] == pytest.approx(found, abs=0.011)


def test_fewer_bits_are_told_to_be_a_study_that_no_engine_is_faster_for(trained):
    _, report, _ = trained
    study = report.candidates[1]
    assert study.emulated == "codes of 3 bits lie in INT8 tensors: no engine is faster for them"
    assert study.latency_ratio is None
    assert study.training is not None
    assert report.candidates[0].emulated is None


def test_a_second_run_trains_nothing_and_nothing_is_left_of_checkpoints(trained, monkeypatch, tmp_path):
    from quant.engine import timing

    project, report, cache = trained
    monkeypatch.setenv("QUANT_CACHE", str(cache))
    monkeypatch.setattr(timing, "measure_first_runs", lambda *_arguments, **_options: {})
    again = quant.run(project.recipe, output=tmp_path / "out").report
    assert again.results_digest == report.results_digest
    assert set(again.timings.stages.values()) == {0.0}
    assert not list((cache / "stages").glob("unfinished/*"))


def test_calibration_samples_without_labels_are_distilled_from_where_there_is_no_train_split(project):
    project.write({"schemes": [qat()]})
    row = quant.run(project.recipe, output=project.output).report.candidates[0].training
    assert (row.role, row.samples, row.kept) == ("calibration", 64, 1)
    assert row.loss == "distillation from FP32: KL divergence of output 'logits', squared error of output 'embedding'"


def test_ranges_in_the_report_are_those_that_were_learned(project):
    project.write({"schemes": [qat(scale_learning_rate=0.2, epochs=2)], "data": {"splits": SPLITS}})
    trained = quant.run(project.recipe, output=project.output).report
    project.write({"schemes": [qat(epochs=0)], "data": {"splits": SPLITS}})
    start = quant.run(project.recipe, output=project.output).report
    found, before = ({row.tensor: (row.low, row.high) for row in report.calibration.ranges} for report in (trained, start))
    assert found.keys() == before.keys() != set()
    assert found != before


@pytest.mark.parametrize(
    ("options", "splits", "message"),
    [
        (
            {"early_stopping": {"patience": 1}},
            {"train": 600, "calibration": 64, "evaluation": 700},
            r"recipe.yaml:\d+: early stopping is judged on search samples, and there are none\nhint: give `data.splits.search`",
        ),
        (
            {"loss": "labels"},
            {"calibration": 64, "evaluation": 700},
            r"recipe.yaml:\d+: training on labels needs a `train` split\nhint: give `data.splits.train`",
        ),
    ],
)
def test_what_training_wants_and_the_recipe_lacks_is_told_before_any_work(project, options, splits, message):
    project.write({"schemes": [qat(**options)], "data": {"splits": splits}})
    with pytest.raises(DataError, match=message):
        quant.run(project.recipe, output=project.output)


def test_a_model_that_cannot_be_trained_is_not_applicable_with_the_operator(project, monkeypatch):
    from quant.twin import conversion

    known = conversion.claimed()
    monkeypatch.setattr(conversion, "claimed", lambda: known - {"Relu"})
    project.write({"schemes": ["int8", qat()]})
    found = quant.run(project.recipe, output=project.output).report.candidates[1]
    assert found.status == "not applicable"
    assert found.reason == "nothing to quantize: the model has the operator Relu, which has no form that can be trained"


def test_a_model_that_remembers_is_not_for_a_scheme_that_trains(project):
    @dataclass
    class Shared:
        bound: Bound

    def obstacles(state):
        project.write({"model": {"state": state}, "schemes": ["int8-qat", "int8"]})
        shared = Shared(bind(load_recipe(project.recipe), trust_code=False))
        return [training_obstacle(shared, title) for title in shared.bound.schemes]

    assert obstacles({"h": "hn"}) == ["the model remembers (h), and is not trained through time", None]
    assert obstacles({}) == [None, None]


@pytest.fixture
def uneven(project, digits):
    """A project one of whose pixels is 40 times as bright as the others, which smoothing evens out."""
    x, w0 = digits.x.copy(), digits.weights["w0"].copy()
    x[:, 20] *= 40
    w0[20] /= 40
    project.data(x=x)
    project.weights(w0=w0)
    return project


def test_transforms_are_tried_before_training_but_for_those_that_change_the_function(uneven):
    uneven.write({"schemes": [qat(), {"kind": "int8"}], "transforms": ["smoothquant", "range-search", "adaround"], "data": {"splits": SPLITS}})
    trained, plain = quant.run(uneven.recipe, output=uneven.output).report.candidates
    assert [row.transform for row in trained.transforms] == ["smoothquant", "range-search"]
    assert [row.transform for row in plain.transforms] == ["smoothquant", "range-search", "adaround"]
    assert trained.transforms[0].kept
    assert trained.metrics["accuracy"] > 0.85


def test_the_teacher_is_the_model_as_transforms_left_it(uneven, monkeypatch):
    """So that layers, whose outputs a transform may have scaled, are held to what they compute."""
    from quant.engine import candidates
    from quant.engine.training import training_material
    from quant.graph.model import read_model

    seen = []
    monkeypatch.setattr(candidates, "training_material", lambda *given: seen.append(training_material(*given)) or seen[-1])
    uneven.write({"schemes": [qat()], "transforms": ["smoothquant"], "data": {"splits": SPLITS}})
    quant.run(uneven.recipe, output=uneven.output)
    assert "x_smoothed" in {value.name for material in seen for node in read_model(material.model).graph for value in node.outputs}
