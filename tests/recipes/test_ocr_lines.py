"""What the recipe `ocr-lines` finds."""

import string

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.network]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    from quant.api import run

    return run("ocr-lines", output=tmp_path_factory.mktemp("ocr-lines"), overrides=["schemes=[int8]", "plan=null", "latency.requests=5"]).report


def lines():
    from quant.recipe.load import load_recipe
    from recipes.ocr_lines import lines as rows

    return [row["text"] for row in rows(**load_recipe("ocr-lines").recipe.data.arguments)]


def test_lines_are_as_long_as_lines_of_print_and_are_typed_with_a_keyboard():
    found = lines()
    assert len(found) > 5000
    assert max(map(len, found)) <= 60
    # A line ends where the next word would not fit; the longest words have under 20 letters.
    assert min(map(len, found)) > 60 - 20
    assert {c for line in found for c in line} - set(string.printable) <= set("\u00e4\u00e9\u00f6\u00fc")


def test_fp32_reads_the_lines_as_well_as_it_is_known_to(report):
    assert report.baseline.samples == 800
    assert 0.010 <= report.baseline.metrics["cer"] <= 0.013  # 1.13 to 1.19 % on 200 lines drawn elsewhere, of which 83 to 87 % without a mistake
    assert 0.83 <= report.baseline.metrics["exact-match"] <= 0.87


def test_int8_makes_hardly_more_mistakes(report):
    (int8,) = report.candidates
    assert int8.metrics["cer"] <= report.baseline.metrics["cer"] + 0.002
    assert int8.verdict == "pass"
    assert {row.kernel for row in int8.audit} == {"QLinearConv", "MatMulIntegerToFloat", "QLinearMatMul"}
    assert len(int8.audit) == 57 + 13
