"""Static INT8 of a MiniLM sentence encoder by calibration alone: 128 texts, no labels, every matrix product in INT8, in three dialects."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.slow, pytest.mark.network]

LEAST_COSINE = {"onnxruntime": 0.998, "openvino": 0.998, "tensorrt": 0.997}
"""Target -> mean cosine to the FP32 embeddings, over all 4,500 texts. TensorRT takes symmetric codes alone."""
TEXTS = 4500
MOST_POINTS = 0.003
LEAST_SPEARMAN = 0.724
OVERRIDES = ("schemes=[int8]", f"targets=[{', '.join(LEAST_COSINE)}]", "latency.requests=2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The reports of both recipes about the encoder."""
    from quant.api import run

    folder = tmp_path_factory.mktemp("static")
    return {recipe: run(recipe, output=folder / recipe, overrides=OVERRIDES).report for recipe in ("text-sentiment", "text-similarity")}


def candidate(report, target):
    """What was measured on a target; skips where the engine is missing."""
    found = next(one for one in report.candidates if one.target == target)
    if found.status == "not available":
        pytest.skip(found.reason)
    return found


@pytest.mark.parametrize("target", LEAST_COSINE)
def test_embeddings_stay_as_they_were_with_every_product_in_integers(runs, target, record_property):
    found = candidate(runs["text-sentiment"], target)
    products = [choice for choice in found.plan if choice.op in {"MatMul", "Gemm"}]
    record_property("figure", f"text-sentiment on {target}: cosine {found.fidelity.cosine_mean:.5f} over {found.fidelity.samples} texts")
    assert {choice.format for choice in products} == {"int8"}
    assert len(products) == 49  # 48 of the encoder, one of the probe
    names = {choice.layer for choice in products}
    assert {row.runs for row in found.audit if row.layer in names} <= {"int8"}
    assert (found.fidelity.output, found.fidelity.samples) == ("embedding", TEXTS)
    assert found.fidelity.cosine_mean >= LEAST_COSINE[target]


@pytest.mark.parametrize("target", LEAST_COSINE)
def test_sentiment_is_told_as_well_as_before(runs, target, record_property):
    report = runs["text-sentiment"]
    found, fp32 = candidate(report, target).metrics["accuracy"], report.baseline.metrics["accuracy"]
    record_property("figure", f"text-sentiment on {target}: accuracy {fp32:.4f} -> {found:.4f}")
    assert found >= fp32 - MOST_POINTS


@pytest.mark.parametrize("target", LEAST_COSINE)
def test_words_are_as_alike_as_people_find_them(runs, target, record_property):
    report = runs["text-similarity"]
    found = candidate(report, target).metrics["spearman"]
    record_property("figure", f"text-similarity on {target}: Spearman {report.baseline.metrics['spearman']:.4f} -> {found:.4f}")
    assert found >= LEAST_SPEARMAN
