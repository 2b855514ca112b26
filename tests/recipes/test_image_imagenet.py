"""What the recipe `image-imagenet` finds."""

import time
from pathlib import Path

import numpy as np
import pytest

PICTURES = Path(__file__).resolve().parents[3] / "shared" / "data" / "imagenet-sample"
"""750 pictures beside the repository, called by their class (NNNN.jpg): research only, so no part of it."""

pytestmark = [pytest.mark.slow, pytest.mark.network]
needs_pictures = pytest.mark.skipif(not PICTURES.is_dir(), reason=f"no labelled pictures in {PICTURES}; they may not be handed on, so bring them yourself")
OVERRIDES = (f"data.source={PICTURES}", r"data.label.file_name=(\d+)\.jpg", "data.splits.calibration=128", "schemes=[int8]", "latency.requests=5")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    from quant.api import run

    return run("image-imagenet", output=tmp_path_factory.mktemp("image-imagenet"), overrides=OVERRIDES)


def test_fp32_names_18_of_the_20_pictures_that_come_with_the_recipe():
    from quant.api import evaluate

    found = evaluate("image-imagenet")
    assert found == {"accuracy": pytest.approx(18 / 20), "top-5": pytest.approx(19 / 20)}


@needs_pictures
def test_int8_gives_the_answers_of_fp32(done):
    (int8,) = done.report.candidates
    assert done.report.baseline.samples == 622
    assert done.report.baseline.value == pytest.approx(0.878, abs=0.01)  # of 1,000 such pictures
    assert int8.metrics["accuracy"] >= done.report.baseline.value - 0.005
    assert int8.fidelity.samples == 622
    assert int8.fidelity.agreement >= 0.985
    assert int8.verdict == "pass"


@needs_pictures
def test_every_layer_runs_in_integers(done):
    (int8,) = done.report.candidates
    kernels = [row.kernel for row in int8.audit]
    assert (kernels.count("QLinearConv"), kernels.count("QGemm"), len(kernels)) == (49, 1, 50)


@needs_pictures
def test_one_scale_for_a_whole_weight_loses_what_bias_correction_and_a_scale_for_each_channel_keep(tmp_path):
    from quant.api import run

    plain = "schemes=[{kind: int8, per_channel: false, correct_bias: false}, {kind: int8, name: no-correction, correct_bias: false}, int8]"
    report = run(
        "image-imagenet", output=tmp_path, overrides=[*OVERRIDES, "transforms=[]", plain.replace("{kind: int8, per", "{kind: int8, name: per-tensor, per")]
    ).report
    found = {candidate.scheme: candidate for candidate in report.candidates}
    assert found["per-tensor"].metrics["accuracy"] <= report.baseline.value - 0.04  # 6 points of 1,000 pictures
    assert found["per-tensor"].verdict == "fail"
    assert found["int8"].fidelity.sqnr_db >= found["no-correction"].fidelity.sqnr_db + 3 >= found["per-tensor"].fidelity.sqnr_db + 6


@needs_pictures
@pytest.mark.skipif("vnni" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"), reason="this CPU has no instruction for products of 8-bit integers")
def test_int8_takes_at_most_three_fifths_of_the_time(done):
    from quant.graph.runtime import Runtime

    files = done.folder / "artifacts" / "onnxruntime"
    fp32, int8 = (Runtime(files / name / "model.onnx") for name in ("fp32", "int8"))
    feed = {"image": np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)}

    def seconds(runtime):
        start = time.thread_time()
        runtime.run(feed)
        return time.thread_time() - start

    for runtime in (fp32, int8):
        seconds(runtime)
    assert np.median([seconds(int8) / seconds(fp32) for _ in range(60)]) <= 0.60


@needs_pictures
@pytest.mark.benchmark
def test_one_scale_for_a_whole_weight_comes_within_one_and_a_half_points_once_its_codes_are_chosen_together(tmp_path, record_property):
    from quant.api import run

    overrides = [*OVERRIDES, "transforms=[equalization, adaround]", "schemes=[{kind: int8, per_channel: false}]"]
    report = run("image-imagenet", output=tmp_path, overrides=overrides).report
    (int8,) = report.candidates
    record_property("figure", f"image-imagenet, one scale to a weight: top-1 {report.baseline.value:.4f} -> {int8.metrics['accuracy']:.4f}")
    assert int8.metrics["accuracy"] >= report.baseline.value - 0.015
