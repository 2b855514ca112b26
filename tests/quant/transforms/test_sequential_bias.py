"""Means of quantized layers, brought back layer by layer."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quant.core.formats import Range
from quant.data.samples import Sample
from quant.graph.layers import find_layers
from quant.graph.model import read_model, signature, write_model
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.stages.activations import gather_means
from quant.stages.running import Feeding
from quant.targets import TARGETS
from quant.transforms import TRANSFORMS, Seen, Setting

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)
DIALECT = TARGETS.make("onnxruntime").dialect
node = zoo.node
R = np.random.default_rng(7)


class Feeds(list):
    role, digest = "calibration", "feeds"


def draw(*shape):
    return R.normal(size=shape).astype(np.float32)


CHAIN = zoo.model(
    [
        node("Conv", "x w1 b1", "c1", "first", pads=[1] * 4), node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2", "second", pads=[1] * 4), node("Relu", "c2", "r2"),
        node("GlobalAveragePool", "r2", "p"), node("Flatten", "p", "f"), node("Gemm", "f w3 b3", "y", "last", beta=0.5),
    ],
    {"x": ["N", 3, 8, 8]}, {"y": ["N", 5]},
    {"w1": draw(6, 3, 3, 3), "b1": draw(6), "w2": draw(7, 6, 3, 3), "w3": draw(7, 5), "b3": draw(5)},
)  # fmt: skip
ROWS = zoo.model(
    [node("MatMul", "x w1", "m", "product"), node("Add", "m b1", "a", "added"), node("Relu", "a", "r"), node("MatMul", "r w2", "y", "bare")],
    {"x": ["N", "T", 6]}, {"y": ["N", "T", 4]}, {"w1": draw(6, 8), "b1": draw(8), "w2": draw(8, 4)},
)  # fmt: skip
SHAPES = {"chain": (CHAIN, (3, 8, 8)), "rows": (ROWS, (5, 6))}


def job(proto, shape, tmp_path, samples=8):
    """(model, its change, the quantized graph before and after, means of a tensor)."""
    path = write_model(ir.from_proto(proto), tmp_path / "model")
    feeding = Feeding(signature(read_model(path)))
    found = Feeds(Sample(i, ({"x": np.abs(draw(*shape))},)) for i in range(samples))
    scheme = SCHEMES.make("int8", {"correct_bias": False})

    def quantized(at):
        model = read_model(at)
        plan = scheme.plan(model, find_layers(model), DIALECT)
        scheme.apply(model, plan, Evidence(ranges, {}, {}, {}), DIALECT)
        return model

    def means(model, tensors):
        return gather_means(model, tensors, path.parent, found, feeding)

    model = read_model(path)
    plan = scheme.plan(model, find_layers(model), DIALECT)
    needed = scheme.needs(model, plan, DIALECT).ranges
    ranges = {name: Range(-1.5, 1.5) for name in needed}  # most values are cut: a mean error that no arithmetic on weights foresees
    transform = TRANSFORMS.make("sequential-bias-correction")
    change = transform.apply(
        model, Setting(plan, DIALECT, per_channel=True), Seen({}, lambda _: iter(()), ranges, quantized=lambda: quantized(path), means=means)
    )
    after = write_model(model, tmp_path / "after")
    return path, change, quantized(path), quantized(after), means


@pytest.mark.parametrize(("graph", "tensors"), [("chain", {"c1": 1, "c2": 1, "y": 1}), ("rows", {"a": -1})])
def test_the_means_of_every_corrected_layer_are_those_of_fp32_again(graph, tensors, tmp_path):
    path, change, before, after, means = job(*SHAPES[graph], tmp_path)
    assert set(change.layers) == ({"first", "second", "last"} if graph == "chain" else {"product"})
    wanted, was, found = (means(m, tensors) for m in (read_model(path), before, after))
    for name in tensors:
        assert np.abs(was[name] - wanted[name]).max() > 0.01
        # A bias is written in float32 or in INT32 codes of the product's scale, about 1e-4 here; what is behind it is rounded anew.
        np.testing.assert_allclose(found[name], wanted[name], atol=2e-3)


def test_means_are_those_of_numpy_and_samples_count_alike(tmp_path):
    path = write_model(ir.from_proto(ROWS), tmp_path)
    texts = [draw(length, 6) for length in (2, 5, 9)]
    samples = Feeds(Sample(i, ({"x": text},)) for i, text in enumerate(texts))
    model = read_model(path)
    found = gather_means(model, {"a": -1, "y": 2}, path.parent, samples, Feeding(signature(model)))
    weights = {name: value.const_value.numpy().astype(np.float64) for name, value in model.graph.initializers.items()}
    added = [text @ weights["w1"] + weights["b1"] for text in texts]
    np.testing.assert_allclose(found["a"], np.mean([a.mean(axis=0) for a in added], axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["y"], np.mean([(np.maximum(a, 0) @ weights["w2"]).mean(axis=0) for a in added], axis=0), rtol=1e-5, atol=1e-6)
    assert [v.name for v in model.graph.outputs] == ["y"]  # the graph stays as it is


def test_a_layer_that_nothing_is_added_to_is_left_alone(tmp_path):
    _, change, *_ = job(*SHAPES["rows"], tmp_path)
    assert "bare" not in change.layers


def test_the_corrected_model_computes_in_runtime(tmp_path):
    path, *_ = job(*SHAPES["chain"], tmp_path)
    fed = {"x": draw(2, 3, 8, 8)}
    assert Runtime(path).run(fed)["y"].shape == Runtime(tmp_path / "after" / "model.onnx").run(fed)["y"].shape == (2, 5)
