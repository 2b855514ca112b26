"""Every artifact is held to the plain meaning of its graph, in every run; an engine that breaks one layer is there in the test alone."""

import json

import numpy as np
import pytest

import quant
from quant.core.documents import Audit, AuditRow
from quant.engine import agreeing
from quant.graph.layers import find_layers
from quant.graph.model import add_initializer, constant, read_model
from quant.graph.runtime import Runtime
from quant.report.document import Report
from quant.report.markdown import markdown
from quant.report.page import html_page
from quant.report.table import candidate_notes
from quant.targets import TARGETS

_BASE = TARGETS.get("onnxruntime")


def _break(path, layer):
    """The model in `path` without the bias of `layer`, as a wrong fusion would leave it."""
    model = read_model(path)
    node = next(n for n in model.graph if n.name == layer)
    source = node.inputs[2].producer()
    bias = constant(node.inputs[2]) if source is None else constant(source.inputs[0])
    wrong = add_initializer(model.graph, "wrong", (bias * 0).astype(bias.dtype))
    (node if source is None else source).replace_input_with(2 if source is None else 0, wrong)
    return model


class Breaks(_BASE):
    """An engine that loses the bias of the first layer of a graph, but not in FP32."""

    kind = "breaks"

    def session(self, artifact, folder, *, threads):
        """The engine, with its fault."""
        path = folder / artifact.main
        return super().session(artifact, folder, threads=threads) if artifact.scheme == "fp32" else Runtime(_break(path, "dense/first"), threads=threads)

    def audit(self, artifact, folder, plan, layers):
        """As planned."""
        del folder, layers
        rows = tuple(AuditRow(layer=c.layer, planned=c.format, runs=c.format, kernel="Fused", agrees=True) for c in plan.layers)
        return Audit(target=self.kind, scheme=artifact.scheme, rows=rows)


@pytest.fixture
def _breaks(monkeypatch):
    TARGETS.kinds()
    monkeypatch.setitem(TARGETS._classes, "breaks", Breaks)


def run(project, **changes):
    project.write(changes)
    return quant.run(project.recipe, output=project.output)


def test_an_engine_that_computes_what_its_graph_means_agrees(finished):
    for candidate in finished.run.report.candidates:
        found = candidate.agreement
        assert (found.agrees, found.parting, found.samples, found.reason) == (True, None, 16, "")
        assert [o.output for o in found.outputs] == ["logits", "embedding"]
        assert all(o.noise_db < o.limit_db < 0 for o in found.outputs)
    told = json.loads((finished.project.output / "report.json").read_text())
    assert {c["agreement"]["agrees"] for c in told["candidates"]} == {True}


@pytest.mark.usefixtures("_breaks")
def test_an_engine_that_breaks_a_layer_is_reported_with_that_layer_on_every_page(project, cli):
    project.write({"targets": ["breaks"], "schemes": ["int8"], "gate": {"max_drop": 0.99}})
    outcome = cli("run", project.recipe, "--output", project.output)
    report = Report.load(project.output / "report.json")
    (candidate,) = report.candidates
    assert candidate.agreement.agrees is False
    assert candidate.agreement.parting.layer == "dense/first"
    said = "the engine does not compute what its graph means: output"
    for text in (" ".join(candidate_notes(report)), outcome.out.replace("\n", " "), html_page(report)):
        assert said in text
        assert "it begins at layer dense/first" in text
    assert "it begins at layer dense/first" in markdown(report)


@pytest.mark.usefixtures("_breaks")
def test_what_passes_its_gate_passes_though_its_engine_parts_and_what_fails_it_fails(project):
    found = run(project, targets=["breaks"], schemes=["int8"], gate={"max_drop": 0.99})
    assert [(c.verdict, c.agreement.agrees) for c in found.report.candidates] == [("pass", False)]
    found = run(project, targets=["breaks"], schemes=["int8"], gate={"max_drop": 0.001})
    assert [(c.verdict, c.agreement.agrees) for c in found.report.candidates] == [("fail", False)]


def test_no_samples_no_comparison(project):
    found = run(project, evaluation={"metrics": ["accuracy"], "agreement_samples": 0})
    assert [c.agreement for c in found.report.candidates] == [None]
    assert not [stage for stage in found.report.timings.stages if stage.startswith(("agree", "plain"))]


def test_a_graph_without_a_plain_meaning_here_is_said_to_have_none(project, monkeypatch):
    class Refuses:
        def __init__(self, path, *, optimize):
            if "quant-cache" in str(path) and not optimize and "import" not in str(path):
                raise quant.graph.runtime.ModelError("this graph needs another machine")
            self.run = Runtime(path, optimize=optimize).run

    monkeypatch.setattr("quant.graph.plain.Runtime", Refuses)
    found = run(project)
    (candidate,) = found.report.candidates
    assert (candidate.verdict, candidate.agreement.agrees) == ("pass", None)
    assert candidate.agreement.reason == "the graph has no plain meaning here: this graph needs another machine"
    assert "Not compared with the plain meaning of its graph" in html_page(found.report)


def test_what_is_compared_are_the_first_evaluation_samples_and_the_fp32_graph_as_written(project, monkeypatch, digits):
    seen = {}
    monkeypatch.setattr(agreeing, "_agreement", lambda *_, **given: seen.update(given) or pytest.fail("stop"))
    with pytest.raises(BaseException, match="stop"):
        run(project, evaluation={"metrics": ["accuracy"], "agreement_samples": 5, "batch_size": 2})
    assert [len(feed["x"]) for feed in seen["feeds"]] == [2, 2, 1]
    graph = next((project.folder.parent / "quant-cache" / "stages" / "import").glob("*/model.onnx"))
    plain = Runtime(graph, optimize=False)
    for feed, outputs in zip(seen["feeds"], seen["exact"], strict=True):
        for name, array in plain.run(feed).items():
            np.testing.assert_array_equal(outputs[name], array)
    assert len(find_layers(read_model(graph))) == 2
    assert digits.x.shape[1] == seen["feeds"][0]["x"].shape[1]
