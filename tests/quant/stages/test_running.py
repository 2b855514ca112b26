"""Running: each sample once with its own outputs, states handed on, requests in turn."""

from itertools import groupby

import numpy as np
import pytest

from evaluators import METRICS
from quant.graph.model import read_model
from quant.graph.runtime import Runtime
from quant.stages.evaluate import Predictions, Reference, evaluate
from quant.stages.first_run import ARTIFACT_FILE
from quant.stages.measure import measure_first_runs, measure_latency, requests
from quant.stages.running import run_samples
from quant.targets import TARGETS


@pytest.mark.parametrize("threads", ["1", "3"])
def test_samples_of_mixed_shapes_come_back_once_each_with_their_own_outputs(save, node, samples, monkeypatch, threads):
    monkeypatch.setenv("QUANT_THREADS", threads)
    path, feeding = save([node("Mul", "x x", "y")], {"x": ["N", "T"]}, {"y": ["N", "T"]}, batch_size=4)
    r = np.random.default_rng(0)
    feeds = [[{"x": r.normal(size=r.integers(1, 4)).astype(np.float32)} for _ in range(r.integers(1, 4))] for _ in range(60)]
    found = list(run_samples(Runtime(path).run, samples(feeds), feeding))
    assert sorted(position for position, _ in found) == list(range(60))
    for position, outputs in found:
        assert [o["y"].tolist() for o in outputs] == [(f["x"] * f["x"]).tolist() for f in feeds[position]]


def test_a_stateful_model_runs_as_a_loop_in_numpy(save, node, samples):
    r = np.random.default_rng(0)
    w, u = r.normal(size=(3, 4)).astype(np.float32), r.normal(size=(4, 4)).astype(np.float32)
    nodes = [
        node("MatMul", "x w", "a"),
        node("MatMul", "h u", "b"),
        node("Add", "a b", "c"),
        node("Tanh", "c", "h_next"),
        node("ReduceSum", "h_next axes", "y", keepdims=0),
    ]
    path, feeding = save(
        nodes, {"x": [1, 3], "h": [1, 4]}, {"y": [1], "h_next": [1, 4]}, {"w": w, "u": u, "axes": np.int64([1])}, state={"h": "h_next"}
    )  # fmt: skip
    feeds = [[{"x": r.normal(size=3).astype(np.float32)} for _ in range(length)] for length in (5, 1, 9)]
    for position, outputs in run_samples(Runtime(path).run, samples(feeds), feeding):
        state = np.zeros(4)
        for feed, found in zip(feeds[position], outputs, strict=True):
            state = np.tanh(feed["x"] @ w + state @ u)
            np.testing.assert_allclose(found["h_next"].reshape(-1), state, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found["y"], state.sum(), rtol=1e-4, atol=1e-5)


@pytest.fixture
def classifier(save, node, samples):
    r = np.random.default_rng(0)
    w = r.normal(size=(4, 3)).astype(np.float32)
    path, feeding = save([node("MatMul", "x w", "y")], {"x": ["N", 4]}, {"y": ["N", 3]}, {"w": w}, batch_size=4)
    x = r.normal(size=(10, 4)).astype(np.float32)
    labels = [int(i) for i in r.integers(0, 3, 10)]
    return path, feeding, samples([[{"x": row}] for row in x], labels), x @ w


def test_evaluation_records_every_sample_in_order_and_keeps_the_outputs(classifier, tmp_path):
    path, feeding, rows, logits = classifier
    metric = METRICS.make("accuracy", {})
    found = evaluate(Runtime(path).run, rows, feeding, {"accuracy": metric}, title="t", keep="y")
    correct = logits.argmax(axis=1) == rows.labels
    assert metric.value(found.predictions.records["accuracy"]) == pytest.approx(correct.mean())
    assert found.predictions.groups["accuracy"].tolist() == list(range(10))
    found.predictions.save(tmp_path / "p.npz")
    again = Predictions.load(tmp_path / "p.npz")
    assert again.records["accuracy"].tolist() == found.predictions.records["accuracy"].tolist()
    reference = Reference(tmp_path / "o.npz")
    reference.write(found.kept)
    kept = reference.read()
    np.testing.assert_allclose([kept[i, 0] for i in range(10)], logits, rtol=1e-5)
    same = evaluate(Runtime(path).run, rows, feeding, {}, title="t", keep="y", against=kept)
    assert (same.closeness.exact, same.closeness.agreement) == (True, 1.0)
    noisy = evaluate(lambda feed: {"y": Runtime(path).run(feed)["y"] * np.float32(1.01)}, rows, feeding, {}, title="t", keep="y", against=kept)
    assert noisy.closeness.sqnr_db == pytest.approx(40, abs=0.1)  # 20 log10(1 / 0.01)


def test_requests_come_round_again_in_order(classifier):
    _, feeding, rows, _ = classifier
    asked = requests(rows, feeding, most=2)
    seen = []

    class Listening:
        outputs = ("y",)

        def run(self, feed):
            seen.append(next(i for i, request in enumerate(asked) if request is feed))
            return {}

    found = measure_latency({"fp32": Listening()}, asked, rounds=5, warmup=1, baseline="fp32", batch_size=4)
    assert [len(r["x"]) for r in asked] == [4, 4]
    assert [n for n, _ in groupby(seen)][-5:] == [0, 1, 0, 1, 0]  # each several times, to settle
    assert found["fp32"].requests == 5


def test_the_first_run_is_taken_in_a_process_of_its_own(classifier, tmp_path):
    path, feeding, rows, _ = classifier
    target = TARGETS.make("onnxruntime")
    artifact = target.export(read_model(path), tmp_path / "artifact", scheme="fp32")
    artifact.save(tmp_path / "artifact" / ARTIFACT_FILE)
    found = measure_first_runs({"fp32": (artifact, tmp_path / "artifact")}, requests(rows, feeding, most=1)[0], threads=1)["fp32"]
    assert 0 < found.load_s < 60
    assert 0 < found.first_run_s < 60
    assert found.peak_rss_bytes > 1 << 20
