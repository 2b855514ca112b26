"""Small graphs, made with ONNX's own helper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Build = Callable[..., onnx.ModelProto]


def _infos(shapes: Mapping[str, Sequence[int | str] | None], types: Mapping[str, int]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), s) for n, s in shapes.items()]


@pytest.fixture
def build() -> Build:
    """Makes a model of nodes, inputs and outputs (name -> shape), and weights (name -> array)."""

    def make(nodes: Sequence[NodeProto], inputs, outputs, weights=None, *, opset=13, types=None, weights_are_inputs=False, domains=()):
        tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
        infos = _infos(inputs, types or {})
        if weights_are_inputs:
            infos += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
        graph = helper.make_graph(list(nodes), "g", infos, _infos(outputs, types or {}), tensors)
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
        return helper.make_model(graph, opset_imports=imports, ir_version=3 if weights_are_inputs else 8)

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def reference(model: onnx.ModelProto | ir.Model, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX's reference evaluator computes."""
    proto = model if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    return [np.asarray(a) for a in ReferenceEvaluator(proto).run(None, dict(feed))]


@pytest.fixture(name="reference")
def _reference():
    return reference


@pytest.fixture
def save(tmp_path: Path):
    """Writes a model as the user would bring it, and gives its path."""

    def write(proto: onnx.ModelProto, name: str = "user.onnx") -> Path:
        path = tmp_path / "user" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(proto.SerializeToString())
        return path

    return write
