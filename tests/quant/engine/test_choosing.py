"""`schemes: auto`: the cheapest first, until one passes and is as fast and as small as is wanted."""

from dataclasses import dataclass
from xml.etree import ElementTree as ET

import pytest

import quant
from quant.engine.bind import Bound, bind
from quant.engine.choosing import cheapest_first
from quant.recipe.load import load_recipe
from quant.schemes import SCHEMES, cost
from quant.targets.onnxruntime import OnnxRuntime

ALWAYS, NEVER = 1e9, 1e-9
"""Times, as shares of FP32's, that every artifact keeps to, and that none does."""


@pytest.fixture
def run(project):
    """Runs the project's recipe with `schemes: auto`; transforms are left out, for they change nothing here."""

    def runs(changes=None, **wanted):
        project.write({"schemes": {"kind": "auto", **wanted}, "transforms": [], **(changes or {})})
        return quant.run(project.recipe, output=project.output).report

    return runs


def _statuses(report):
    return {candidate.scheme: candidate.status for candidate in report.candidates}


def test_schemes_are_ordered_by_the_data_that_they_need_and_then_by_their_bits():
    order = sorted(SCHEMES, key=lambda kind: cost(SCHEMES.make(kind)))
    needs = [SCHEMES.make(kind).data for kind in order]
    assert needs == sorted(needs, key=["none", "calibration", "training"].index)
    assert order.index("int8-dynamic") < order.index("fp16") < order.index("int8") < order.index("int4")


def test_the_cheapest_that_passes_in_time_is_chosen_and_the_others_are_not_tried(run, project):
    report = run(speed=ALWAYS)
    found = _statuses(report)
    assert found.pop("int8-dynamic") == "measured"
    assert set(found) == set(SCHEMES) - {"int8-dynamic"}
    assert set(found.values()) == {"not tried"}
    assert {c.reason for c in report.candidates if c.status == "not tried"} == {"int8-dynamic passed before"}
    [choice] = report.timings.choices
    assert (choice.target, choice.scheme) == ("onnxruntime", "int8-dynamic")
    [step] = choice.steps
    assert step.startswith("int8-dynamic passes, and takes at most ")
    assert step.endswith(" of FP32's time (wanted: 1e+09)")
    assert report.calibration is None, "int8-dynamic needs no data"
    assert [row.scheme for row in report.timings.latency] == ["fp32", "int8-dynamic"]
    for name in ("report.html", "report.md"):
        text = (project.output / name).read_text(encoding="utf-8")
        assert "On onnxruntime int8-dynamic was chosen: int8-dynamic passes, and takes at most " in text
        assert "Times decide differently on other machines." in text
        assert "int8-dynamic passed before" in text
    skipped = [
        case.find("skipped").get("message") for case in ET.parse(project.output / "junit.xml").getroot().iter("testcase") if case.get("name") == "not tried"
    ]
    assert set(skipped) == {"not tried: int8-dynamic passed before"}
    again = quant.run(project.recipe, output=project.output).report
    assert set(again.timings.stages.values()) == {0.0}
    assert again.timings.choices == report.timings.choices
    assert again.results_digest == report.results_digest


def test_nothing_is_chosen_where_none_is_fast_enough_and_what_is_emulated_comes_last(run, project, cli):
    report = run(speed=NEVER, among=["fp16", "int8", "int8-dynamic"])
    assert list(_statuses(report).items()) == [("int8-dynamic", "measured"), ("int8", "measured"), ("fp16", "measured")]
    assert report.verdict == "pass", "the verdict is that of the gates, which do not depend on the machine"
    [choice] = report.timings.choices
    assert choice.scheme is None
    assert choice.steps[0].startswith("int8-dynamic passes, but takes up to ")
    assert choice.steps[0].endswith(" of FP32's time (wanted: 1e-09)")
    assert choice.steps[2] == "fp16 passes, but its format is emulated here"
    assert "On onnxruntime no scheme is all that was wanted: int8-dynamic passes, but" in cli("run", project.recipe, "--output", project.output).out


def test_size_and_gate_decide_where_any_time_will_do(run):
    report = run({"gate": {"max_drop": 0.05}}, speed=None, size=0.5, among=["int8", "fp16", "int8-dynamic"])
    [choice] = report.timings.choices
    assert (choice.scheme, choice.steps) == ("int8-dynamic", ("int8-dynamic passes",))
    report = run({"gate": {"max_drop": 0.05}}, speed=None, size=0.001, among=["fp16", "int8"])
    [choice] = report.timings.choices
    sizes = {c.scheme: c.size_ratio for c in report.candidates}
    assert choice.scheme is None
    assert choice.steps == tuple(f"{scheme} passes, but has {sizes[scheme]:.3f} of FP32's size (wanted: 0.001)" for scheme in ("fp16", "int8"))


def test_what_does_not_pass_is_not_chosen(run):
    report = run({"gate": {"max_drop": 0}}, speed=ALWAYS, among=["int8"])
    [choice] = report.timings.choices
    assert report.candidates[0].verdict == "inconclusive"
    assert (choice.scheme, choice.steps) == (None, ("int8 neither passes nor fails",))


def test_the_gate_alone_decides_where_every_format_is_emulated(run, monkeypatch):
    monkeypatch.setattr(OnnxRuntime, "emulates", lambda _self, _format: "this processor is too old")
    report = run(speed=NEVER, among=["int8", "fp16"])
    assert _statuses(report) == {"fp16": "measured", "int8": "not tried"}
    [choice] = report.timings.choices
    assert (choice.scheme, choice.steps) == ("fp16", ("fp16 passes, and its format is emulated here, as all are: the gate alone decides",))


def test_the_gate_alone_decides_where_engines_run_on_other_machines(run, monkeypatch):
    monkeypatch.setattr(OnnxRuntime, "ahead_of_time", True)
    report = run(speed=NEVER, among=["int8", "int8-dynamic"])
    assert _statuses(report) == {"int8-dynamic": "measured", "int8": "not tried"}
    [choice] = report.timings.choices
    assert choice.steps == ("int8-dynamic passes; its engines run on other machines, so that there is no time to go by, and the gate alone decides",)
    assert report.timings.latency == ()


def test_each_target_chooses_for_itself(run):
    report = run({"targets": ["onnxruntime", {"kind": "onnxruntime", "name": "other"}]}, speed=ALWAYS, among=["int8", "int8-dynamic"])
    assert [(c.target, c.scheme) for c in report.timings.choices] == [("onnxruntime", "int8-dynamic"), ("other", "int8-dynamic")]
    assert [(c.target, c.scheme, c.status) for c in report.candidates if c.status == "not tried"] == [
        ("onnxruntime", "int8", "not tried"),
        ("other", "int8", "not tried"),
    ]


def test_without_a_metric_there_is_nothing_to_stop_at(refused):
    told = refused({"schemes": "auto", "evaluation": {"metrics": []}})
    assert "`schemes: auto` stops at a scheme that passes the gate, and without metrics there is nothing to gate by" in told
    assert "hint: name a metric in `evaluation.metrics`, or list the schemes" in told


def test_a_mistake_in_a_scheme_names_its_line(refused):
    told = refused({"schemes": {"kind": "auto", "among": ["int8", {"kind": "int8", "name": "mine", "per_chanel": True}]}})
    assert "unknown key 'per_chanel' in schemes.among.1" in told
    assert "did you mean 'per_channel'?" in told


def test_listed_schemes_keep_their_order(project):
    @dataclass
    class Shared:
        bound: Bound

    project.write({"schemes": ["fp16", "int8-dynamic", "int8"]})
    assert cheapest_first(Shared(bind(load_recipe(project.recipe), trust_code=False)), "onnxruntime") == ["fp16", "int8-dynamic", "int8"]
