"""What is said of an engine against its graph."""

import pytest

from evaluators.agreement import Agreement, OutputAgreement, Parting
from evaluators.fidelity import Fidelity
from quant.report.agreement import agreement_sentences, disagreement, output_rows
from quant.report.ladder import Ladder, Rung, ladder_text
from quant.report.markdown import markdown
from quant.report.page import html_page
from quant.report.table import candidate_notes

GOOD = OutputAgreement(output="logits", rows=16, values=80, noise_db=-30.0, deviation_db=-50.0, limit_db=-20.0, agrees=True)
OFF = GOOD.model_copy(update={"deviation_db": -6.2, "agrees": False})
PART = Parting(
    layer="conv1", op="Conv", within=("conv1", "clip1"), tensor="clip1_out", deviation_db=-2.1, noise_db=-49.1, before=("x",), behind=("conv2",), looks=3
)


def found(*outputs, parting=None, **changes):
    return Agreement(**({"agrees": all(o.agrees for o in outputs), "samples": 16, "outputs": outputs, "parting": parting} | changes))


def plain(text):
    return text.replace("\N{MINUS SIGN}", "-")


def test_an_engine_that_agrees_needs_no_note():
    assert disagreement(found(GOOD)) == disagreement(None) == ""
    assert agreement_sentences(found(GOOD)) == ("The engine computes what its graph means, on 16 samples.",)
    assert agreement_sentences(None) == ()


def test_one_that_does_not_is_told_with_both_powers_and_the_layer():
    assert plain(disagreement(found(GOOD, OFF, parting=PART))) == (
        "the engine does not compute what its graph means: output logits is off by -6.2 dB, the format itself by -30.0 dB; it begins at layer conv1 (-2.1 dB)"
    )
    said = [plain(text) for text in agreement_sentences(found(OFF, parting=PART))]
    assert said[1:] == [
        "The first tensor that is off is clip1_out (off by -2.1 dB, where rounding makes -49.1 dB).",
        "What it is computed from agrees: x.",
        "It is read by conv2.",
    ]


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (
            ("conv1", "clip1"),
            "The disagreement goes away when a, b, c and 1 more is given out, which points at what the engine makes of conv1 and clip1 together.",
        ),
        (("conv1",), "The disagreement goes away when a, b, c and 1 more is given out."),
    ],
)
def test_what_makes_it_go_away_points_at_a_fusion(within, expected):
    parting = PART.model_copy(update={"vanishes": ("a", "b", "c", "d"), "within": within})
    assert expected in agreement_sentences(found(OFF, parting=parting))


def test_ids_and_numbers_that_are_not_finite_are_told_as_such():
    ids = OutputAgreement(output="ids", rows=16, values=100, noisy=0.02, differing=0.5, agrees=False)
    assert "50.00 % of output ids differs, between FP32 and the graph 2.00 %" in disagreement(found(ids))
    assert "output logits has 3 values that are not finite" in disagreement(found(OFF.model_copy(update={"not_finite": 3})))
    assert output_rows(found(ids)) == (("ids", "2.00 %", "50.00 %", "\N{EN DASH}", "✗ no"),)


def test_what_was_not_compared_says_why():
    none = Agreement(agrees=None, samples=0, reason="the graph has no plain meaning here")
    assert agreement_sentences(none) == ("Not compared with the plain meaning of its graph: the graph has no plain meaning here.",)
    assert disagreement(none) == ""


def test_every_page_tells_it_and_names_do_not_act(make):
    evil = "<img src=x onerror=alert(1)>"
    parting = PART.model_copy(update={"layer": evil, "tensor": evil, "before": (evil,), "vanishes": (evil,), "within": (evil, evil)})
    report = make.report(make.candidate(agreement=found(OFF.model_copy(update={"output": evil}), parting=parting)))
    page = html_page(report)
    assert "The engine does not compute what its graph means" in page
    assert "&lt;img" in page
    assert "<img" not in page
    assert "does not compute what its graph means" in markdown(report)
    assert "<img" not in markdown(report)
    assert any("does not compute what its graph means" in note for note in candidate_notes(report))


def closeness(**changes):
    values = {
        "exact": False,
        "sqnr_db": 31.0,
        "cosine_mean": 0.9,
        "cosine_min": 0.8,
        "max_abs_error": 0.5,
        "agreement": 0.75,
        "kl": 0.1,
        "rows": 4,
        "samples": 4,
    }
    return Fidelity(**(values | changes))


def test_a_ladder_has_a_line_for_each_rung_and_ends_with_where_it_becomes_wrong():
    steps = (
        Rung(name="FP32 as written"),
        Rung(name="engine", before="FP32 as written", to_before=closeness(), to_first=closeness(agreement=None), agreement=found(OFF, parting=PART)),
        Rung(name="other\x1b[31m", before="FP32 as written", to_before=closeness(exact=True), agreement=found(OFF, parting=PART), same_as="engine"),
        Rung(name="third", before="FP32 as written", status="not available", reason="it is not here"),
    )
    text = plain(ladder_text(Ladder(subject="m.onnx", first="FP32 as written", inputs="random", output="y", rungs=steps, agrees=False)))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[:2] == ["m.onnx", "inputs: random; output: y"]
    assert "engine ✗ no FP32 as written 31.0 dB 0.90000 0.5000 75.0 % 31.0 dB \N{EN DASH}" in lines
    assert "the same outputs, to the last bit, as engine" in lines
    assert "it is not here" in lines
    assert lines[-1] == "It becomes wrong in engine, at conv1; 2 of 4 rungs part from what they should compute."
    assert "\x1b" not in text


def test_a_ladder_on_which_all_agree_says_so():
    steps = (Rung(name="a"), Rung(name="b", before="a", agreement=found(GOOD)))
    text = ladder_text(Ladder(subject="m", first="a", inputs="random", output="", rungs=steps, agrees=True))
    assert text.splitlines()[-1] == "It computes what the graph means (1 comparison)."
