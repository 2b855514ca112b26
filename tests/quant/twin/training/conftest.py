"""Small graphs with quantizers to train, and samples for them."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quant.core.formats import Range
from quant.data.samples import Sample
from quant.graph.layers import find_layers
from quant.graph.model import signature
from quant.graph.points import insertion_points
from quant.graph.qdq import place_qdq
from quant.targets import TARGETS
from quant.twin.training.material import Material

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[2] / "graph" / "zoo.py")
_zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(_zoo)
DIALECT = TARGETS.make("onnxruntime").dialect


@pytest.fixture(scope="session")
def zoo():
    return _zoo


@dataclass(frozen=True)
class Set:
    """Samples from lists of feeds and labels."""

    feeds: tuple
    labels: tuple
    role: str = "train"
    digest: str = "set"

    def __len__(self):
        return len(self.feeds)

    def __getitem__(self, position):
        return Sample(position, self.feeds[position], self.labels[position])

    def __iter__(self):
        return (self[i] for i in range(len(self)))


@pytest.fixture(scope="session")
def samples():
    return lambda arrays, labels=None, role="train", name="x": Set(
        tuple(({name: array},) for array in arrays), tuple(labels) if labels is not None else (None,) * len(arrays), role
    )


@pytest.fixture
def perceptron(tmp_path):
    """A network 6 -> 12 -> 3 that tells which third of its inputs is largest; the file, and data for it."""
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 6)).astype(np.float32)
    y = x.reshape(-1, 3, 2).sum(axis=2).argmax(axis=1)
    first = np.concatenate([np.eye(6), -np.eye(6)], axis=1).astype(np.float32) + random.normal(size=(6, 12)).astype(np.float32) / 50
    second = (np.kron(np.concatenate([np.eye(3), -np.eye(3)]), np.ones((2, 1))) + random.normal(size=(12, 3)) / 50).astype(np.float32)
    weights = {"w0": first, "b0": np.zeros(12, np.float32), "w1": second, "b1": np.zeros(3, np.float32)}
    nodes = [_zoo.node("Gemm", "x w0 b0", "h", name="first"), _zoo.node("Relu", "h", "r"), _zoo.node("Gemm", "r w1 b1", "logits", name="second")]
    path = tmp_path / "model.onnx"
    onnx.save(_zoo.model(nodes, {"x": ["N", 6]}, {"logits": ["N", 3]}, weights), path)
    return path, x, y


@pytest.fixture
def placed_in():
    """A graph of a file with quantizers around every layer, and what was placed."""

    def place(path, dialect=DIALECT, span=3.0):
        model = ir.load(path)
        layers = [layer for layer in find_layers(model) if layer.op != "Gather"]
        points = insertion_points(model, layers, dialect)
        positive = {node.outputs[0].name for node in model.graph if node.op_type == "Relu"}
        return model, place_qdq(model, layers, {name: Range(0.0 if name in positive else -span, span) for name in points}, dialect)

    return place


@pytest.fixture
def material(samples):
    """Material for a file, from arrays and labels."""

    def make(path, x, y=None, **more):
        found = signature(ir.load(path))
        first = found.outputs[0].name
        return Material(path, found, samples(x, y), **{"judged": frozenset({first}), "classes": frozenset({first}), **more})

    return make
