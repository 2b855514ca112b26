"""The fastest candidate that passes, beside FP32."""

import pytest

from quant.report.markdown import markdown
from quant.report.page import html_page
from quant.report.speed import fastest_sentence


@pytest.mark.parametrize(
    ("ratio", "sentence"),
    [
        (0.42, "Fastest that passes: int8 on onnxruntime, at 0.42 of FP32's time"),
        (0.994, "Fastest that passes: int8 on onnxruntime, at 0.99 of FP32's time"),
        (0.996, "No candidate that passes is faster than FP32 here (int8 on onnxruntime: 1.00)"),
        (1.09, "No candidate that passes is faster than FP32 here (int8 on onnxruntime: 1.09)"),
    ],
)
def test_the_fastest_is_said_with_its_time_and_only_called_fast_when_it_is(make, ratio, sentence):
    report = make.report(make.candidate(latency_ratio=ratio))
    assert fastest_sentence(report) == sentence
    assert f"{sentence.replace(chr(39), '&#39;')}." in html_page(report)
    assert f"\n\n{sentence}.\n\n" in markdown(report)


def test_nothing_is_said_where_none_passes(make):
    report = make.reports["fail"]()
    assert fastest_sentence(report) == ""
    assert "Fastest" not in html_page(report)
    assert "astest" not in markdown(report)
