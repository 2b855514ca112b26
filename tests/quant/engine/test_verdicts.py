"""Slices, gates on them, and evaluations that end early, in whole runs."""

import numpy as np
import pytest

import quant
from quant.errors import DataError, RecipeError
from quant.report.markdown import markdown


def _run(project, changes):
    project.write(changes)
    return quant.run(project.recipe, output=project.output).report


def test_slices_are_shown_and_gate_nothing_unless_asked(project):
    report = _run(project, {"evaluation": {"metrics": ["accuracy"], "slices": ["label"]}})
    [candidate] = report.candidates
    assert [row.verdict.slice for row in candidate.slices] == [f"label {digit}" for digit in range(10)]
    assert sum(row.verdict.samples for row in candidate.slices) == 700
    assert sum(row.verdict.samples * row.verdict.value for row in candidate.slices) == pytest.approx(700 * candidate.value)
    assert len(candidate.gates) == 1
    assert "accuracy of label 3" in markdown(report)


def test_a_gate_on_slices_asks_each_of_them(project):
    report = _run(project, {"evaluation": {"slices": ["label"]}, "gate": [{"max_drop": 0.05}, {"max_drop": 0.2, "slices": ["label"]}]})
    [candidate] = report.candidates
    assert [gate.title for gate in candidate.gates] == ["accuracy", *(f"accuracy of label {digit}" for digit in range(10))]
    assert {gate.verdict.limit for gate in candidate.gates[1:]} == {0.2}
    assert {gate.verdict.family for gate in candidate.gates if gate.verdict.decision != "fail"} == {11}
    again = quant.run(project.recipe, output=project.output).report
    assert again.results_digest == report.results_digest


def test_a_sure_verdict_ends_the_evaluation_before_all_samples_were_run(project):
    whole = _run(project, {})
    report = _run(project, {"gate": {"max_drop": 0.05, "sequential": {"looks": 7, "spending": "pocock"}}})
    [candidate], [all_of_it] = report.candidates, whole.candidates
    found = candidate.gates[0].verdict
    assert candidate.verdict == all_of_it.verdict == "pass"
    assert found.samples < 700 == found.available
    assert found.samples == 100 * found.looks
    assert candidate.fidelity.samples == found.samples
    assert f"{found.samples} of 700" in markdown(report)
    assert "the evaluation ended early" in markdown(report)


def test_sequential_runs_are_the_same_again_and_on_any_number_of_threads(project, monkeypatch):
    changes = {"gate": {"max_drop": 0.05, "sequential": True}}
    first = _run(project, changes)
    monkeypatch.setenv("QUANT_THREADS", "1")
    monkeypatch.setenv("QUANT_CACHE", str(project.folder / "another-cache"))
    assert _run(project, changes).results_digest == first.results_digest


def test_slices_that_a_gate_names_must_be_declared(project):
    with pytest.raises(RecipeError, match=r"'labels' is none of evaluation\.slices"):
        _run(project, {"evaluation": {"slices": ["label"]}, "gate": {"slices": ["labels"]}})


def test_gates_look_together_or_not_at_all(project):
    with pytest.raises(RecipeError, match="some gates look early and others do not"):
        _run(project, {"gate": [{"sequential": True}, {"max_drop": 0.1}]})


def test_samples_of_one_length_have_no_slices_by_length(project):
    with pytest.raises(DataError, match="slices by length: all 700 evaluation samples have the same value"):
        _run(project, {"evaluation": {"slices": ["length"]}})


def test_too_few_samples_to_pass_are_said_before_any_work(project, caplog):
    """59 samples are the least for 5 points: 0.95^58 is 0.0510, 0.95^59 is 0.0485."""
    report = _run(project, {"data": {"splits": {"evaluation": 58}}})
    [said] = [note for note in report.data.notes if "cannot pass" in note]
    assert said.startswith("the gate on accuracy cannot pass on 58 samples unless a candidate is better than FP32")
    assert said.endswith("a limit of 5.00 points takes at least 59 samples")
    assert [record.message for record in caplog.records if record.name == "quant"] == [said]
    assert report.verdict == "inconclusive"
    enough = _run(project, {"data": {"splits": {"evaluation": 59}}})
    assert not any("cannot pass" in note for note in enough.data.notes)


def test_an_engine_that_differs_from_run_to_run_is_run_again(project, monkeypatch):
    from quant.targets import TARGETS

    target = TARGETS.get("onnxruntime")
    session = target.session

    class Trembling:
        def __init__(self, inner):
            self.inner, self.rng = inner, np.random.default_rng(0)

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def run(self, feed):
            return {name: array + self.rng.normal(0, 1e-3, array.shape).astype(array.dtype) for name, array in self.inner.run(feed).items()}

    monkeypatch.setattr(target, "session", lambda self, *args, **how: Trembling(session(self, *args, **how)))
    report = _run(project, {"evaluation": {"repeats": 4, "agreement_samples": 0}})
    [candidate] = report.candidates
    assert candidate.repeats == 4
    assert candidate.gates[0].verdict.samples == 700
    assert "bootstrap" in candidate.gates[0].verdict.method
    assert "its outputs differ from run to run: each sample was run 4 times" in markdown(report).replace("\\", "")
