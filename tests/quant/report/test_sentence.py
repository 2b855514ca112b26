"""The verdict in one sentence."""

import pytest

from quant.report.sentence import verdict_sentence


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            "pass",
            (
                "Pass: int8 on onnxruntime keeps accuracy within 1 point of FP32 (80.00 % → 79.80 %, drop at most 0.60 points at 95 % confidence), "
                "with 0.26 of FP32's size."
            ),
        ),
        (
            "fail",
            (
                "Fail: int8 on onnxruntime does not keep accuracy within 1 point of FP32 (80.00 % → 76.00 %, drop 4.00 points, at least 3.10 points at "
                "95 % confidence)."
            ),
        ),
        (
            "inconclusive",
            (
                "Inconclusive: it cannot be said yet whether int8 on onnxruntime keeps accuracy within 1 point of FP32 (80.00 % → 79.20 %, drop between "
                "0.30 points and 1.30 points, each bound at 95 % confidence); about 1,200 more samples needed."
            ),
        ),
        ("not available", "Fail: nothing was measured: int8 on tensorrt is not available (no NVIDIA GPU on this machine)."),
        ("no candidates", "Fail: there was no candidate."),
        (
            "no metrics",
            (
                "Inconclusive: there is no metric to judge by; int8 on onnxruntime was built; its outputs have cosine 0.9991 to FP32's, SQNR 31.2 dB, "
                "same top entry in 98.7 %."
            ),
        ),
    ],
)
def test_each_kind_of_verdict_is_said_in_one_sentence(make, kind, sentence):
    assert make.reports[kind]().sentence == sentence


def test_the_smallest_passing_candidate_is_named_then_the_one_with_the_smallest_drop(make):
    big = make.candidate("big", size_bytes=300)
    worse = make.candidate("worse", make.gate(drop=0.005), size_bytes=200)
    better = make.candidate("better", make.gate(drop=0.001), size_bytes=200)
    assert "better on onnxruntime" in make.report(big, worse, better).sentence
    assert "3 of 3 candidates pass" in make.report(big, worse, better).sentence


def test_the_sentence_does_not_depend_on_times_or_on_the_order_of_candidates(make):
    slow, fast = make.candidate("a", size_bytes=100, latency_ratio=0.9), make.candidate("b", size_bytes=200, latency_ratio=0.1)
    base = make.report(slow, fast)
    retimed = [c.model_copy(update={"latency_ratio": 0.5}) for c in (fast, slow)]
    assert verdict_sentence("pass", retimed, baseline=base.baseline) == base.sentence


def test_a_failed_run_names_the_candidate_that_came_closest(make):
    far = make.candidate("far", make.gate("fail", **make.failing))
    near = make.candidate("near", make.gate("fail", **(make.failing | {"drop": 0.02, "drop_lower": 0.011})))
    two = make.candidate("two", make.gate("fail", **(make.failing | {"drop": 0.015})), make.gate("fail", metric="f1", **make.failing))
    found = make.report(far, two, near).sentence
    assert "near on onnxruntime does not keep accuracy" in found
    assert "drop 2.00 points, at least 1.10 points" in found
    assert "none of 3 failing candidates comes closer" in found


def test_an_inconclusive_run_names_the_candidate_that_needs_the_fewest_samples(make):
    many = make.candidate("many", make.gate("inconclusive", **(make.undecided | {"needed": 9000})))
    few = make.candidate("few", make.gate("inconclusive", **(make.undecided | {"needed": 1})))
    never = make.candidate("never", make.gate("inconclusive", **(make.undecided | {"needed": None})))
    assert "whether few on" in make.report(many, few, never).sentence
    assert "about 1 more sample needed" in make.report(many, few, never).sentence
    assert "no number of samples would decide" in make.report(never).sentence


def test_a_relative_limit_is_said_as_a_share_of_fp32(make):
    found = make.report(make.candidate("int8", make.gate(relative=True, metric="perplexity", unit="perplexity", baseline=20.77, value=20.88))).sentence
    assert "keeps perplexity within 1 % of FP32 (20.77 → 20.88, drop at most 0.60 % of FP32" in found


def test_a_candidate_that_fails_by_its_audit_alone_says_so(make):
    found = make.report(make.candidate(audit=make.audit, verdict="fail")).sentence
    assert found == "Fail: 1 of 3 layers of int8 on onnxruntime run in another format than planned."


def test_an_emulated_candidate_is_called_so(make):
    assert "fp16 on onnxruntime (emulated)" in make.reports["emulated"]().sentence


def test_a_pass_names_what_the_engine_really_computes_before_what_it_emulates(make):
    emulated = make.candidate("fp16", emulated="computed in FP32").model_copy(update={"size_bytes": 1})
    report = make.report(emulated, make.candidate("int8"))
    assert report.sentence.startswith("Pass: int8 on onnxruntime keeps")


@pytest.mark.parametrize(
    ("direction", "words"),
    [("higher", "a limit of 0 can only be met by a candidate that is better than FP32"), ("same", "a limit of 0 leaves no room for any change")],
)
def test_a_limit_of_zero_is_not_called_close(make, direction, words):
    never = make.gate("inconclusive", direction=direction, **(make.undecided | {"needed": None, "limit": 0.0}))
    said = make.report(make.candidate("int8", never)).sentence
    assert said.endswith(f"; {words}.")
    assert "too close" not in said


def test_an_artifact_larger_than_fp32_is_said_as_times_its_size(make):
    assert make.report(make.candidate(size_ratio=1.98)).sentence.endswith(", at 1.98 times FP32's size.")
