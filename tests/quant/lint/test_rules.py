"""Every rule finds the smallest graph that breaks it, and TensorRT-RTX itself does to that graph what the rule says."""

import pytest

from quant.lint import RULES, Rule


def test_the_rule_finds_the_smallest_graph_that_breaks_it_and_tensorrt_rtx_does_as_it_says(case, lint, rtx, tmp_path):
    found = [f for f in lint(case.drawing, capability=case.capability).findings if f.rule == case.rule]
    assert found, f"{case.name} was not found"
    said = rtx.ask(tmp_path / "model.onnx", case.capability)
    if case.refused:
        assert not said["accepted"]
        assert case.refused in said["said"]
        assert case.mild or any(f.severity == "error" for f in found)
    else:
        assert said["accepted"], said["said"]
        assert all(f.severity != "error" for f in found)
    assert case.says in said["said"]
    if case.layers:
        assert case.layers("\n".join(said["layers"])), "\n".join(said["layers"])


def test_the_rule_finds_the_smallest_graph_that_breaks_it_where_tensorrt_rtx_is_not_installed(case, lint):
    assert case.rule in {f.rule for f in lint(case.drawing, capability=case.capability).findings}


@pytest.mark.parametrize("kind", [k for k in RULES if k != "M02"])
def test_every_rule_has_a_graph_that_breaks_it(kind, cases):
    assert kind in {case.rule for case in cases}


@pytest.mark.parametrize("kind", list(RULES))
def test_every_rule_says_why_and_what_to_do_and_an_error_says_what_tensorrt_says(kind):
    rule = RULES.get(kind)
    assert rule.title
    assert rule.why.endswith(".")
    assert rule.fix.endswith(".")
    assert rule.severity != "error" or rule.text
    assert issubclass(rule, Rule)
