"""What fails in one candidate fails that candidate: it says why, and the others go on."""

import json
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import quant
from quant.core.documents import Audit, AuditRow, LayerChoice, PrecisionPlan
from quant.engine.fallback import judge
from quant.engine.summary import Outcome, overall
from quant.errors import ModelError
from quant.targets import onnxruntime


def _by_scheme(report):
    return {candidate.scheme: candidate for candidate in report.candidates}


@pytest.fixture
def breaking(project, digits):
    """A model that takes the logarithm of a pixel: 0.0015 in every 50th sample, which is 0 in INT8. Gives the project, and in how many evaluation samples."""
    from quant.data.load import load_data
    from quant.recipe.load import load_recipe

    x = digits.x.copy()
    x[:, 0] = np.where(np.arange(len(x)) % 50 == 0, 0.0015, 1.0)
    project.data(x=x)
    pixel = np.zeros((64, 1), np.float32)
    pixel[0] = 1
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["hidden"], name="dense/first"),
        helper.make_node("Relu", ["hidden"], ["embedding"], name="relu"),
        helper.make_node("MatMul", ["x", "pixel"], ["corner"], name="corner"),
        helper.make_node("Log", ["corner"], ["log"], name="log"),
        helper.make_node("Mul", ["log", "tiny"], ["small"], name="scale"),
        helper.make_node("Gemm", ["embedding", "w1", "b1"], ["scores"], name="dense/second"),
        helper.make_node("Add", ["scores", "small"], ["logits"], name="sum"),
    ]
    weights = {**digits.weights, "pixel": pixel, "tiny": np.float32([1e-7])}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name, width in (("x", 64), ("logits", 10))]
    graph = helper.make_graph(nodes, "digits", ends[:1], ends[1:], [numpy_helper.from_array(array, name) for name, array in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), project.folder / "digits.onnx")
    project.write({"schemes": ["int8", "fp16"]})
    loaded = load_recipe(project.recipe)
    samples = load_data(loaded.recipe.data, base=loaded.path, where=loaded.where).roles["evaluation"]
    return project, sum(next(iter(s.feeds[0].values()))[0] < 0.5 for s in samples)


def test_a_candidate_whose_outputs_are_not_finite_fails_and_the_others_go_on(breaking):
    project, count = breaking
    report = quant.run(project.recipe, output=project.output).report
    found = _by_scheme(report)
    assert count > 5
    assert found["int8"].status == "failed"
    assert found["int8"].verdict == "fail"
    assert found["int8"].reason == f"output 'logits' is not finite for {count} of 700 samples, where FP32's is"
    assert found["int8"].latency_ratio is None
    assert found["int8"].fidelity is None
    assert found["fp16"].verdict == "pass"
    assert report.verdict == "pass"
    assert [row.scheme for row in report.timings.latency] == ["fp32", "fp16"]
    again = quant.run(project.recipe, output=project.output).report
    assert again.results_digest == report.results_digest
    assert set(again.timings.stages.values()) == {0.0}


def test_a_run_with_nothing_but_a_broken_candidate_fails_and_says_why_everywhere(breaking, cli):
    project, count = breaking
    outcome = cli("run", project.recipe, "--output", project.output, "--set", "schemes=[int8]")
    assert outcome.code == 1
    reason = f"output 'logits' is not finite for {count} of 700 samples, where FP32's is"
    assert f"Fail: int8 on onnxruntime is not fit: {reason}." in outcome.out
    for name in ("report.html", "report.md"):
        assert f"is not finite for {count} of 700 samples" in (project.output / name).read_text(encoding="utf-8")
    [case] = ET.parse(project.output / "junit.xml").getroot().iter("testcase")
    assert reason in case.find("failure").get("message")


@pytest.mark.parametrize("step", ["session", "export", "audit"])
def test_a_candidate_that_its_engine_refuses_fails_and_the_others_go_on(project, monkeypatch, step):
    real = getattr(onnxruntime.OnnxRuntime, step)

    def refuses(self, *arguments, **options):
        artifact = options.get("scheme") or arguments[0].scheme
        if artifact == "int8":
            raise ModelError("the engine does not like it", where="model.onnx", hint="use another engine")
        return real(self, *arguments, **options)

    monkeypatch.setattr(onnxruntime.OnnxRuntime, step, refuses)
    project.write({"schemes": ["int8", "int8-dynamic"]})
    report = quant.run(project.recipe, output=project.output).report
    found = _by_scheme(report)
    assert (found["int8"].status, found["int8"].verdict, found["int8"].reason) == ("failed", "fail", "the engine does not like it")
    assert found["int8-dynamic"].verdict == "pass"
    assert report.verdict == "pass"
    assert (found["int8"].artifact is not None) == (step != "export")


def test_a_metric_that_cannot_read_the_candidate_alone_fails_it(project, monkeypatch, digits):
    """A sigmoid of INT8 may give 1.004: no probability."""
    from quant.graph.runtime import Runtime

    real = Runtime.run

    def beyond(self, feed, outputs=None):
        found = real(self, feed, outputs)
        return {name: array + 1000 if "int8" in str(self.source) else array for name, array in found.items()}

    init = Runtime.__init__

    def remember(self, model, **options):
        self.source = (
            json.loads((model.parent / "artifact.json").read_text())["scheme"] if hasattr(model, "parent") and (model.parent / "artifact.json").exists() else ""
        )
        init(self, model, **options)

    monkeypatch.setattr(Runtime, "__init__", remember)
    monkeypatch.setattr(Runtime, "run", beyond)
    project.weights(w1=digits.weights["w1"] * 0, b1=np.full(10, 0.3, np.float32))
    model = onnx.load(project.folder / "digits.onnx")
    model.graph.node.append(helper.make_node("ReduceMean", ["logits"], ["score"], name="mean", keepdims=1, noop_with_empty_axes=0))
    model.graph.output.append(helper.make_tensor_value_info("score", TensorProto.FLOAT, [1, 1]))
    del model.graph.output[:2]
    onnx.save(model, project.folder / "digits.onnx")
    project.data(y=(digits.y > 4).astype(np.int64))
    project.write({"schemes": ["int8"], "latency": {"batch_size": 1}, "evaluation": {"batch_size": 1}, "calibration": {"batch_size": 1}})
    report = quant.run(project.recipe, output=project.output).report
    assert report.candidates[0].status == "failed"
    assert "is no probability" in report.candidates[0].reason


def test_layers_that_fall_back_to_float_fail_the_candidate(project, monkeypatch, cli):
    monkeypatch.setattr(onnxruntime, "INTEGER_KERNELS", frozenset())
    outcome = cli("run", project.recipe, "--output", project.output)
    assert outcome.code == 1
    reason = "2 of 2 layers planned in int8 run in another format: dense/first (QGemm), dense/second (QGemm)"
    assert f"Fail: int8 on onnxruntime is not fit: {reason}." in outcome.out
    assert f"int8 on onnxruntime: {reason}" in outcome.out
    candidate = quant.load_report(project.output).candidates[0]
    assert (candidate.status, candidate.verdict, candidate.reason) == ("measured", "fail", reason)
    assert candidate.gates[0].verdict.decision == "pass"
    assert "QGemm" in (project.output / "report.html").read_text(encoding="utf-8")
    assert quant.load_report(project.output).timings.fastest_passing is None


def test_the_recipe_may_allow_a_fallback_and_it_is_still_said(project, monkeypatch, cli):
    monkeypatch.setattr(onnxruntime, "INTEGER_KERNELS", frozenset())
    project.write({"targets": [{"kind": "onnxruntime", "allow_fallback": True}]})
    outcome = cli("run", project.recipe, "--output", project.output)
    assert outcome.code == 0
    assert "run in another format: dense/first (QGemm), dense/second (QGemm) (allowed by the recipe)" in outcome.out


def _plan(*formats):
    return PrecisionPlan(
        scheme="int8", base="int8", layers=tuple(LayerChoice(layer=f"layer{i}", op="Conv", format=f, reason="") for i, f in enumerate(formats))
    )


def _audit(*runs, planned="int8"):
    rows = tuple(AuditRow(layer=f"layer{i}", planned=planned, runs=r, kernel=f"K{i}", agrees=r == planned) for i, r in enumerate(runs))
    return Audit(target="engine", scheme="int8", rows=rows)


def test_an_emulated_format_runs_in_another_one_by_nature():
    assert judge(_audit("fp32"), _plan("int8"), emulated=True, allowed=False) == ("", False)


def test_a_layer_that_the_engine_does_not_show_is_said_but_proves_nothing():
    said, fails = judge(_audit("unknown", "int8"), _plan("int8", "int8"), emulated=False, allowed=False)
    assert said == "1 of 2 layers planned in int8 is not found in the engine's graph: layer0 (K0)"
    assert not fails


def test_a_layer_that_was_to_stay_in_float_is_no_fallback():
    assert judge(_audit("fp32"), _plan("fp32"), emulated=False, allowed=False) == ("", False)


def test_many_fallbacks_are_not_all_named():
    said, fails = judge(_audit(*["fp32"] * 5), _plan(*["int8"] * 5), emulated=False, allowed=False)
    assert said.endswith("layer0 (K0), layer1 (K1), layer2 (K2) and 2 more")
    assert fails


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([], "fail"),
        ([Outcome("a", "t", status="not available")], "fail"),
        ([Outcome("a", "t")], "inconclusive"),
        ([Outcome("a", "t", status="failed", fails=True)], "fail"),
        ([Outcome("a", "t", status="failed", fails=True), Outcome("b", "t")], "inconclusive"),
    ],
)
def test_a_run_that_judged_nothing_is_inconclusive(outcomes, verdict):
    assert overall(outcomes) == verdict


def test_without_metrics_closeness_alone_is_told_and_the_verdict_is_open(project, cli):
    project.write({"evaluation": {"metrics": []}})
    outcome = cli("run", project.recipe, "--output", project.output)
    assert outcome.code == 3, outcome
    assert "there is no metric to judge by" in outcome.out
    found = quant.load_report(project.output).candidates[0].fidelity
    assert found.output == "logits"
    assert found.kl is None, "nothing says that these are scores of classes"


def test_closeness_of_classes_is_told_only_of_an_output_that_holds_them(finished, project):
    for candidate in finished.run.report.candidates:
        assert candidate.fidelity.output == "logits"
        assert candidate.fidelity.agreement > 0.9
        assert candidate.fidelity.kl >= 0
    project.write({"evaluation": {"fidelity_output": "embedding"}, "schemes": ["int8-dynamic"]})
    found = quant.run(project.recipe, output=project.output).report.candidates[0].fidelity
    assert found.output == "embedding"
    assert found.agreement is None
    assert found.kl is None
    assert found.cosine_mean > 0.9


def test_the_report_has_the_units_of_metrics_and_the_digest_of_the_samples(finished):
    report = finished.run.report
    assert report.baseline.units == {"accuracy": "share", "top-k": "share"}
    assert len(report.data.samples_sha256) == 64


def test_accuracy_is_what_scikit_learn_and_the_artifacts_themselves_say(finished):
    """Recomputed from the artifacts that lie in the folder, with nothing of ours but the split."""
    import onnxruntime as ort
    from sklearn.metrics import accuracy_score

    from quant.data.load import load_data
    from quant.recipe.load import load_recipe

    loaded = load_recipe(finished.project.recipe)
    samples = list(load_data(loaded.recipe.data, base=loaded.path, where=loaded.where).roles["evaluation"])
    x, y = np.stack([next(iter(s.feeds[0].values())) for s in samples]), [s.label for s in samples]
    report = finished.run.report
    for scheme, told in [("fp32", report.baseline.value), *((c.scheme, c.value) for c in report.candidates)]:
        session = ort.InferenceSession(finished.project.output / f"artifacts/onnxruntime/{scheme}/model.onnx", providers=["CPUExecutionProvider"])
        logits = session.run(["logits"], {"x": x})[0]
        assert told == pytest.approx(accuracy_score(y, logits.argmax(axis=1)), abs=0.003), scheme  # dynamic ranges go by batch
