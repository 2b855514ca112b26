"""Small models on disk, and samples made of arrays."""

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.data.samples import Sample
from quant.graph.model import read_model, signature
from quant.stages.running import Feeding


@dataclass(frozen=True)
class Made:
    """Samples from a list of lists of feeds."""

    feeds: list
    labels: list | None = None
    role: str = "calibration"
    digest: str = "made"

    def __len__(self):
        return len(self.feeds)

    def __getitem__(self, position):
        return Sample(position, tuple(self.feeds[position]), self.labels[position] if self.labels else None)

    def __iter__(self):
        return (self[i] for i in range(len(self)))


@pytest.fixture
def samples():
    return Made


@pytest.fixture
def save(tmp_path):
    """Writes a model with inferred types, and gives its path and how samples go in."""

    def write(nodes, inputs, outputs, weights=None, *, batch_size=1, types=None, state=None):
        types = types or {}
        infos = [[helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), s) for n, s in part.items()] for part in (inputs, outputs)]
        tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
        made = helper.make_model(helper.make_graph(nodes, "g", *infos, tensors), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = tmp_path / "model.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(made), path)
        return path, Feeding(signature(read_model(path)), batch_size, state or {})

    return write


@pytest.fixture
def node():
    def make(op, inputs, outputs, **attributes):
        return helper.make_node(op, inputs.split(), outputs.split(), name=f"{op}_{outputs.split()[0]}", **attributes)

    return make
