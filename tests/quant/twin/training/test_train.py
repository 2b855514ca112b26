"""Training: what it brings, that it is the same each time, and that it goes on where it was killed."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from scipy.special import log_softmax

from quant.core.formats.narrowed import narrowed
from quant.errors import DataError, ModelError
from quant.graph.qdq import freeze_qdq
from quant.graph.runtime import Runtime
from quant.targets import TARGETS
from quant.twin.training import fit as loop
from quant.twin.training.material import Trained
from quant.twin.training.options import TrainingOptions
from quant.twin.training.train import train

DIALECT = TARGETS.make("onnxruntime").dialect
THREE_BITS = replace(DIALECT, activations=narrowed(DIALECT.activations, 3), weights=narrowed(DIALECT.weights, 3), operands=narrowed(DIALECT.operands, 3))


@pytest.fixture
def trained(perceptron, placed_in, material):
    """Trains the perceptron in three bits, from ranges that are far too wide; gives the bytes of the graph that comes out, what training told, and how
    it does on new samples: cross-entropy, and how many of them it gets right."""
    path, x, y = perceptron

    def run(*, labels=True, parts=None, **options):
        told = {"epochs": 3, "batch_size": 16, "learning_rate": 0.05, "scale_learning_rate": 0.05, **options}
        model, placed = placed_in(path, THREE_BITS, span=8.0)
        found = train(model, placed, TrainingOptions(**told), material(path, x[:192], y[:192].tolist() if labels else None, **(parts or {})))
        freeze_qdq(model, placed)
        logits = Runtime(model, optimize=False).run({"x": x[192:]})["logits"]
        loss = -log_softmax(logits.astype(np.float64), axis=1)[range(64), y[192:]].mean()
        right = np.mean(logits.argmax(axis=1) == y[192:])
        return ir.to_proto(model).SerializeToString(deterministic=True), found, (float(loss), float(right))

    return run


def test_it_learns_from_labels_to_live_with_three_bits(trained):
    _, nothing, before = trained(epochs=0)
    _, found, after = trained(epochs=6)
    assert nothing.kept == 0
    assert after[0] < 0.7 * before[0]
    assert after[1] > before[1] + 0.1
    assert found.loss == "cross-entropy of output 'logits' against labels"
    assert (found.role, found.samples, found.weights, found.scales, found.kept) == ("train", 192, 4, 4, 6)
    assert [epoch.loss is None for epoch in found.epochs] == [True] + [False] * 6
    assert found.epochs[6].loss < found.epochs[1].loss


def test_it_learns_from_fp32_where_there_are_no_labels(trained):
    _, found, after = trained(labels=False, epochs=6)
    assert found.loss == "distillation from FP32: KL divergence of output 'logits'"
    assert after[1] > trained(epochs=0)[2][1] + 0.1


def test_features_of_layers_count_where_they_are_asked_for(trained):
    found = trained(labels=False, features=1.0, epochs=1)[1]
    assert found.loss == "distillation from FP32: KL divergence of output 'logits', squared error of what 1 of its layers give"


def test_scales_stay_where_they_are_not_to_be_learned(trained):
    data, found, _ = trained(learn_scales=False, epochs=1)
    assert found.scales == 0
    untouched = {name: t.const_value.numpy() for name, t in ir.from_proto(_proto(trained(epochs=0)[0])).graph.initializers.items() if name.endswith("_scale")}
    now = {name: t.const_value.numpy() for name, t in ir.from_proto(_proto(data)).graph.initializers.items() if name.endswith("_scale")}
    assert {k: v.tolist() for k, v in now.items() if "bias" not in k} == {k: v.tolist() for k, v in untouched.items() if "bias" not in k}


def _proto(data):
    import onnx

    return onnx.load_from_string(data)


def test_the_same_bytes_come_out_whatever_the_number_of_threads_and_torchs_state(trained):
    threads = torch.get_num_threads()
    found = set()
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            torch.manual_seed(number)
            found.add(trained(parts={"threads": number}, epochs=2)[0])
            assert torch.get_num_threads() == number
            assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1
    assert trained(epochs=2, seed=1)[0] not in found


def test_sgd_and_adamw_and_constant_rates_are_different_ways(trained):
    ways = [{}, {"optimizer": "sgd"}, {"schedule": "constant"}, {"weight_decay": 0.5}, {"gradient_clip": 0.01, "optimizer": "sgd"}]
    assert len({trained(epochs=1, **way)[0] for way in ways}) == len(ways)


@pytest.fixture
def search(perceptron, samples):
    _, x, y = perceptron
    return samples(x[192:], y[192:].tolist(), role="search")


def test_the_best_epoch_on_the_search_samples_is_kept_and_metrics_are_told(trained, search):
    def measure(run):
        logits = run({"x": np.stack([s.feeds[0]["x"] for s in search])})["logits"]
        return {"accuracy": float(np.mean(logits.argmax(axis=1) == [s.label for s in search]))}

    _, found, after = trained(epochs=5, parts={"search": search, "measure": measure})
    losses = [epoch.search_loss for epoch in found.epochs]
    assert found.kept == losses.index(min(losses)) > 0
    assert min(losses) == pytest.approx(after[0], rel=1e-5)
    assert 0.5 < found.epochs[found.kept].metrics["accuracy"] <= 1


def test_what_training_makes_worse_is_not_taken(trained, search):
    data, found, _ = trained(epochs=2, learning_rate=50.0, gradient_clip=None, optimizer="sgd", parts={"search": search})
    assert found.kept == 0
    assert data == trained(epochs=0)[0]


def test_it_stops_when_patience_is_over(trained, search):
    found = trained(epochs=30, learning_rate=1e-9, scale_learning_rate=1e-9, early_stopping={"patience": 2, "least": 0.01}, parts={"search": search})[1]
    assert len(found.epochs) == 3  # the state before, and two epochs without an hundredth less


def test_a_kill_changes_nothing(trained, tmp_path, monkeypatch):
    """Killed after the first epoch, and again after the second: the checkpoints give the bytes of an undisturbed run."""
    undisturbed = trained(epochs=4)[:2]
    real, scratch = loop.save_state, tmp_path / "scratch"

    def dies(state, folder):
        real(state, folder)
        if len(state.epochs) in {2, 3}:
            raise KeyboardInterrupt

    seen = []
    monkeypatch.setattr(loop, "save_state", dies)
    one = loop._one_epoch
    monkeypatch.setattr(loop, "_one_epoch", lambda work, state, *rest: (seen.append(len(state.epochs)), one(work, state, *rest))[1])
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            trained(epochs=4, parts={"scratch": scratch})
    assert trained(epochs=4, parts={"scratch": scratch})[:2] == undisturbed
    assert seen == [1, 2, 3, 4]


def test_a_damaged_checkpoint_means_to_start_anew(trained, tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"nothing of the kind")
    assert trained(epochs=1, parts={"scratch": tmp_path})[0] == trained(epochs=1)[0]


KILLED = """
import sys, pathlib, signal, os
sys.path[:0] = {paths!r}
from quant.twin.training import fit
real = fit.save_state
def dies(state, folder):
    real(state, folder)
    if len(state.epochs) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
fit.save_state = dies
import quant
quant.run({recipe!r}, output={output!r})
"""


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_leaves_the_same_artifact(make_digits, tmp_path, monkeypatch):
    import quant

    monkeypatch.setenv("QUANT_CACHE", str(tmp_path / "one"))
    recipe, output = make_digits(tmp_path / "project")
    program = KILLED.format(paths=[str(Path(quant.__file__).parents[1])], recipe=str(recipe), output=str(output))
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [scratch] = (tmp_path / "one" / "stages" / "unfinished").iterdir()
    seen = []
    one = loop._one_epoch
    monkeypatch.setattr(loop, "_one_epoch", lambda work, state, *rest: (seen.append(len(state.epochs)), one(work, state, *rest))[1])
    resumed = quant.run(recipe, output=output).report
    assert seen == [2, 3]
    assert not scratch.exists()
    monkeypatch.setenv("QUANT_CACHE", str(tmp_path / "two"))
    whole = quant.run(recipe, output=tmp_path / "whole").report
    assert resumed.candidates[0].files == whole.candidates[0].files
    assert resumed.results_digest == whole.results_digest
    assert [epoch.metrics.keys() for epoch in whole.candidates[0].training.epochs] == [{"accuracy"}] * 4


@pytest.fixture
def make_digits():
    import yaml
    from sklearn.datasets import load_digits

    def make(folder):
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        folder.mkdir()
        x, y = load_digits(return_X_y=True)
        x = (x / 16).astype(np.float32)
        np.savez(folder / "digits.npz", x=x, y=y)
        random = np.random.default_rng(0)
        weights = {"w": random.normal(size=(64, 16)).astype(np.float32) / 4, "v": random.normal(size=(16, 10)).astype(np.float32) / 4}
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"], "a"),
            helper.make_node("Relu", ["h"], ["r"], "b"),
            helper.make_node("MatMul", ["r", "v"], ["y"], "c"),
        ]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", w]) for n, w in (("x", 64), ("y", 10))]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(a, n) for n, a in weights.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "digits.onnx")
        recipe = {
            "version": 1,
            "name": "digits",
            "model": {"source": "digits.onnx"},
            "data": {"source": "digits.npz", "label": {"column": "y"}, "splits": {"train": "rest", "calibration": 64, "search": 100, "evaluation": 500}},
            "schemes": [{"kind": "int8-qat", "epochs": 3, "learning_rate": 0.01}],
            "evaluation": {"metrics": ["accuracy"]},
            "latency": {"requests": 2, "warmup": 0},
        }
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        return folder / "recipe.yaml", folder / "out"

    return make


def test_a_loss_that_is_not_finite_is_told_with_its_step(trained, monkeypatch):
    monkeypatch.setattr(loop, "_loss", lambda *_: torch.tensor(float("nan"), requires_grad=True))
    monkeypatch.setattr(torch.autograd, "grad", lambda *_arguments, **_options: (None,) * 8)
    with pytest.raises(ModelError, match="the loss is not finite in step 1 of epoch 1\nhint: lower `learning_rate`"):
        trained()


def test_a_sample_with_nan_is_told_by_its_index(perceptron, placed_in, material):
    path, x, y = perceptron
    x = x.copy()
    x[7, 2] = np.nan
    model, placed = placed_in(path)
    with pytest.raises(DataError, match=r"sample 7: input 'x' is nan at \[2\]"):
        train(model, placed, TrainingOptions(), material(path, x, y.tolist()))


def test_labels_that_are_missing_are_told(trained):
    with pytest.raises(DataError, match=r"train sample 0 has no label\nhint: say where labels come from with `data.label`, or use `loss: distillation`"):
        trained(labels=False, loss="labels")


def test_a_model_that_remembers_is_refused(trained):
    with pytest.raises(ModelError, match=r"the model remembers \(h\), and is not trained through time"):
        trained(parts={"state": frozenset({"h"})})


def test_labels_that_no_metric_holds_against_the_output_are_left_alone(trained):
    """An embedding has labels too; they say nothing about its columns."""
    assert trained(epochs=1, parts={"judged": frozenset(), "classes": frozenset()})[1].loss == "distillation from FP32: squared error of output 'logits'"


def test_samples_of_two_feeds_are_distilled_feed_by_feed(perceptron, placed_in, material):
    path, x, _ = perceptron
    model, placed = placed_in(path)
    pairs = material(path, x)
    two = replace(pairs.samples, feeds=tuple(({"x": a}, {"x": b}) for a, b in zip(x[::2], x[1::2], strict=True)), labels=(1,) * 128)
    found = train(model, placed, TrainingOptions(epochs=1, batch_size=64), replace(pairs, samples=two))
    assert found.loss == "distillation from FP32: KL divergence of output 'logits'"
    assert found.samples == 128
    with pytest.raises(DataError, match="samples of several feeds have one label for all\nhint: use `loss: distillation`"):
        train(*placed_in(path), TrainingOptions(loss="labels"), replace(pairs, samples=two))


def test_what_was_told_is_a_document(trained, tmp_path):
    found = trained(epochs=1)[1]
    found.save(tmp_path / "trained.json")
    assert Trained.load(tmp_path / "trained.json") == found
