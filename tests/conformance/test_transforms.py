"""What every transform owes, whatever it does; run over the registry."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx_ir as ir
import pytest

from quant.core.signature import Signature
from quant.data.samples import Sample
from quant.graph.layers import find_layers
from quant.graph.model import read_model, signature, write_model
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.stages.activations import gather_inputs, gather_means, gather_rows
from quant.stages.running import Feeding
from quant.targets import TARGETS
from quant.transforms import TRANSFORMS, Seen, Setting

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "quant" / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)
DIALECT = TARGETS.make("onnxruntime").dialect
LAYERLESS = zoo.model([zoo.node("Relu", "x", "y")], {"x": ["N", 8]}, {"y": ["N", 8]})
pytestmark = pytest.mark.parametrize("kind", TRANSFORMS.kinds())


class Feeds(list):
    """Samples of one feed each."""

    role = "calibration"
    digest = "feeds"


def without_batch(proto, seed):
    fed = zoo.feed(proto, seed)
    batched = {v.name for v in proto.graph.input if v.type.tensor_type.shape.dim and v.type.tensor_type.shape.dim[0].dim_param == "N"}
    return {name: array[0] if name in batched else array for name, array in fed.items()}


def work(proto, tmp_path, kind, **options):
    """(transform, its setting, what it sees) for a graph on its way to INT8."""
    path = write_model(ir.from_proto(proto), tmp_path / "before")
    model = read_model(path)
    scheme = SCHEMES.make("int8", {"per_channel": options.pop("per_channel", True)})
    plan = scheme.plan(model, find_layers(model), DIALECT)
    told: Signature = signature(model)
    axes = {v.name: None for v in told.inputs if not v.shape or v.shape[0] != "N"}
    feeding = Feeding(told, batch_axes=axes)
    samples = Feeds(Sample(i, (without_batch(proto, i),)) for i in range(6))
    setting = Setting(plan, DIALECT, per_channel=scheme.options.per_channel)
    transform = TRANSFORMS.make(kind, options)
    tensors = transform.tensors(model, setting)
    rows = gather_rows(path, samples, tensors, feeding, rows=32) if tensors else {}
    needs = scheme.needs(model, plan, DIALECT)
    extremes = gather_rows(path, samples, [n for n in needs.ranges if shaped(model, n)], feeding, rows=8)
    from quant.core.formats import Range

    ranges = {n: Range(float(found.whole.low.min()) * 0.9, float(found.whole.high.max()) * 0.9) for n, found in extremes.items()}
    return SimpleNamespace(
        path=path,
        transform=transform,
        setting=setting,
        seen=Seen(
            rows,
            lambda layers: gather_inputs(path, samples, layers, feeding),
            ranges,
            quantized=lambda: written(path, scheme, plan, needs.known, ranges),
            means=lambda model, tensors: gather_means(model, tensors, path.parent, samples, feeding),
        ),
    )


def written(path, scheme, plan, known, ranges):
    """The quantized graph of a model."""
    model = read_model(path)
    scheme.apply(model, plan, Evidence({**known, **ranges}, {}, {}, {}), DIALECT)
    return model


def shaped(model, name):
    values = {v.name: v for v in (*model.graph.inputs, *(v for node in model.graph for v in node.outputs))}
    return values[name].shape is not None and len(values[name].shape) > 0


def changed(job):
    model = read_model(job.path)
    return model, job.transform.apply(model, job.setting, job.seen)


def bytes_of(model, folder):
    path = write_model(model, folder)
    return [file.read_bytes() for file in sorted(path.parent.iterdir())]


@pytest.mark.parametrize("per_channel", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["per channel", "per tensor"])
@pytest.mark.parametrize("graph", zoo.ZOO)
def test_the_function_is_kept_where_that_is_promised_and_names_inputs_and_outputs_always(kind, graph, per_channel, tmp_path):
    proto = zoo.ZOO[graph]()
    job = work(proto, tmp_path, kind, per_channel=per_channel)
    model, change = changed(job)
    before = read_model(job.path)
    assert [layer.name for layer in find_layers(model)] == [layer.name for layer in find_layers(before)]
    for part in ("input", "output"):
        assert [v.SerializeToString() for v in getattr(ir.to_proto(model).graph, part)] == [v.SerializeToString() for v in getattr(proto.graph, part)]
    assert set(change.layers) <= set(job.setting.plan.quantized) | ({layer.name for layer in find_layers(before)} if job.transform.keeps_function else set())
    assert all(what and low < high for what, (low, high) in change.ranges.items())
    after = Runtime(write_model(model, tmp_path / "after"), optimize=False)
    was = Runtime(job.path, optimize=False)
    for seed in (11, 12):
        fed = zoo.feed(proto, seed)
        for name, array in was.run(fed).items():
            found = after.run(fed)[name]
            if job.transform.keeps_function:
                # A sum of up to a hundred products in another order, behind up to a handful of layers.
                np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(array).max())))
            else:
                assert found.shape == array.shape
                assert np.isfinite(found).all()


@pytest.mark.parametrize("graph", ["residual with relu", "attention", "gemm transB", "depthwise conv"])
def test_the_same_bytes_come_out_again_whatever_the_number_of_threads(kind, graph, tmp_path, monkeypatch):
    made = []
    for threads in ("1", "3"):
        monkeypatch.setenv("QUANT_THREADS", threads)
        job = work(zoo.ZOO[graph](), tmp_path / threads, kind)
        model, change = changed(job)
        made.append((bytes_of(model, tmp_path / threads / "after"), change))
    assert made[0] == made[1]


def test_nothing_is_done_to_a_graph_without_layers(kind, tmp_path):
    job = work(LAYERLESS, tmp_path, kind)
    model, change = changed(job)
    assert not change.layers
    assert not change.ranges
    assert bytes_of(model, tmp_path / "after") == bytes_of(read_model(job.path), tmp_path / "same")
