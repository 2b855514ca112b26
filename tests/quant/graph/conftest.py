"""The zoo of small graphs, and what is asked of every graph that was rewritten."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from quant.core.formats import Range
from quant.graph.layers import find_layers
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS

DIALECT = TARGETS.make("onnxruntime").dialect


def load_zoo():
    spec = importlib.util.spec_from_file_location("zoo", Path(__file__).with_name("zoo.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def zoo():
    return load_zoo()


def extremes(proto, names, feeds):
    """Smallest and largest value of each tensor over the feeds, by running the graph as it is written."""
    model = ir.from_proto(proto)
    inputs, outputs = ({v.name for v in part} for part in (model.graph.inputs, model.graph.outputs))
    values = {v.name: v for node in model.graph for v in node.outputs}
    model.graph.outputs.extend(values[name] for name in names if name not in inputs | outputs)
    runtime = Runtime(model, optimize=False)
    found = [runtime.run(feed) | feed for feed in feeds]
    return {name: Range(min(float(f[name].min()) for f in found), max(float(f[name].max()) for f in found)) for name in names}


def floats(proto):
    return [v.name for node in ir.from_proto(proto).graph for v in node.outputs if v.dtype == ir.DataType.FLOAT]


def quantize(proto, kind, feeds, **options):
    """The graph rewritten by a scheme with min-max ranges over `feeds`, and the plan as it was carried out."""
    scheme, model = SCHEMES.make(kind, options), ir.from_proto(proto)
    plan = scheme.plan(model, find_layers(model), DIALECT)
    needs = scheme.needs(model, plan, DIALECT)
    magnitudes = {name: max(-r.low, r.high) for name, r in extremes(proto, floats(proto), feeds).items()} if needs.magnitudes else {}
    model = ir.from_proto(proto)
    done = scheme.apply(model, plan, Evidence(extremes(proto, needs.ranges, feeds), magnitudes), DIALECT)
    return model, done


@pytest.fixture(name="quantize", scope="session")
def _quantize():
    return quantize


def check_sound(before, after):
    """`after` is a valid graph with the inputs and outputs of `before`, and nothing in it that nobody reads."""
    onnx.checker.check_model(after, full_check=True)
    for part in ("input", "output"):
        assert [v.SerializeToString() for v in getattr(before.graph, part)] == [v.SerializeToString() for v in getattr(after.graph, part)]
    read = {name for graph in _graphs(after.graph) for node in graph.node for name in node.input} | {v.name for v in after.graph.output}
    there = {node.name for node in before.graph.node}
    assert [node.name for node in after.graph.node if node.name not in there and not read & set(node.output)] == []
    assert [t.name for t in after.graph.initializer if t.name not in read] == []
    names = [name for node in after.graph.node for name in node.output if name] + [t.name for t in after.graph.initializer]
    assert len(names) == len(set(names))


def _graphs(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


@pytest.fixture(name="check_sound", scope="session")
def _check_sound():
    return check_sound


def reference(proto, feed):
    """What the ONNX reference evaluator computes, by output."""
    names = [v.name for v in proto.graph.output]
    return dict(zip(names, (np.asarray(a) for a in ReferenceEvaluator(proto).run(None, dict(feed))), strict=True))


@pytest.fixture(name="reference", scope="session")
def _reference():
    return reference


def decibels(signal, other):
    """Signal-to-noise ratio, in dB; 300 when there is no noise."""
    noise = np.mean(np.square(signal.astype(np.float64) - other))
    return 10 * np.log10(np.mean(np.square(signal.astype(np.float64))) / noise) if noise else 300.0


@pytest.fixture(name="decibels", scope="session")
def _decibels():
    return decibels


def pytest_generate_tests(metafunc):
    if "animal" in metafunc.fixturenames:
        metafunc.parametrize("animal", list(load_zoo().ZOO))
