"""What engines say their kernels take, for the layers of graphs that are known."""

import importlib.util
import time
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quant.core.costs import ConversionTimes
from quant.core.documents import PrecisionPlan
from quant.core.formats import Range
from quant.costs import COSTS, Setting
from quant.graph.layers import find_layers
from quant.graph.model import write_model
from quant.graph.work import model_work
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS, Profiles

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)
KINDS = [kind for kind in TARGETS.kinds() if isinstance(TARGETS.make(kind), Profiles)]
WIDE = Range(-8.0, 8.0)


def engine(kind):
    target = TARGETS.make(kind)
    if not target.available().available:
        pytest.skip(target.available().reason)
    return target


def convolutions():
    """Two convolutions with an activation function between them, a sum with a convolution of its own, and a softmax."""
    nodes = [
        zoo.node("Conv", "x w1 b1", "a", "one", pads=[1, 1, 1, 1]),
        zoo.node("Relu", "a", "r"),
        zoo.node("Conv", "r w2 b2", "b", "two", pads=[1, 1, 1, 1]),
        zoo.node("Conv", "r w3 b3", "c", "three", pads=[1, 1, 1, 1]),
        zoo.node("Add", "b c", "s"),
        zoo.node("Softmax", "s", "p", axis=1),
        zoo.node("Conv", "p w4 b4", "y", "four"),
    ]
    sizes = {"w1": (16, 3, 3, 3), "w2": (16, 16, 3, 3), "w3": (16, 16, 3, 3), "w4": (4, 16, 1, 1)}
    weights = {n: zoo.draw(*s, seed=i) for i, (n, s) in enumerate(sizes.items())} | {f"b{n}": zoo.draw(16 if n < 4 else 4, seed=n) for n in range(1, 5)}
    return zoo.model(nodes, {"x": [1, 3, 32, 32]}, {"y": None}, weights)


def products():
    """Q, K and V of one tensor and their products."""
    nodes = [
        zoo.node("MatMul", "x wq", "q", "query"),
        zoo.node("MatMul", "x wk", "k", "key"),
        zoo.node("MatMul", "x wv", "v", "value"),
        zoo.node("Transpose", "k", "kt", perm=[0, 2, 1]),
        zoo.node("MatMul", "q kt", "s", "scores"),
        zoo.node("Softmax", "s", "p", axis=-1),
        zoo.node("MatMul", "p v", "y", "context"),
    ]
    return zoo.model(nodes, {"x": [1, 32, 64]}, {"y": None}, {w: zoo.draw(64, 64, seed=n) for n, w in enumerate(("wq", "wk", "wv"))})


def exported(proto, target, folder, scheme):
    """An artifact of the graph, and the layers' outputs."""
    model = ir.from_proto(proto)
    layers = find_layers(model)
    outputs = {layer.name: str(layer.node.outputs[0].name) for layer in layers}
    if scheme == "int8":
        how = SCHEMES.make("int8", {"correct_bias": False})
        plan: PrecisionPlan = how.plan(model, layers, target.dialect)
        needs = how.needs(model, plan, target.dialect)
        how.apply(model, plan, Evidence({**needs.known, **dict.fromkeys(needs.ranges, WIDE)}), target.dialect)
    return target.export(model, folder, scheme=scheme), outputs


@pytest.mark.parametrize("scheme", ["fp32", "int8"])
@pytest.mark.parametrize("graph", [convolutions, products])
@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_found_in_the_kernels_that_ran(kind, graph, scheme, tmp_path):
    target, proto = engine(kind), graph()
    artifact, outputs = exported(proto, target, tmp_path, scheme)
    found = target.profile(artifact, tmp_path, [zoo.feed(proto, seed) for seed in (0, 1)], outputs, threads=1, runs=3)
    assert {layer for kernel in found.kernels for layer in kernel.layers} == set(outputs)
    assert all(kernel.ms >= 0 for kernel in found.kernels)
    assert found.total_ms > 0
    assert found.scheme == scheme
    assert kind in found.target
    assert any(kernel.codes for kernel in found.kernels) is (scheme == "int8")
    converted = {kernel.converts for kernel in found.kernels if kernel.converts and kernel.codes}
    assert ("x" in converted) is (scheme == "int8"), "the input is what must be quantized by a kernel of its own"
    near = {kernel.near for kernel in found.kernels if not kernel.layers}
    assert near <= {None, *outputs}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_that_computes_no_layer_stands_near_the_one_before_it(kind, tmp_path):
    target, proto = engine(kind), convolutions()
    artifact, outputs = exported(proto, target, tmp_path, "fp32")
    found = target.profile(artifact, tmp_path, [zoo.feed(proto)], outputs, threads=1, runs=2)
    [softmax] = [kernel for kernel in found.kernels if kernel.op.lower() == "softmax"]
    assert softmax.near in {"two", "three"}


def least(target, artifact, folder, feed, runs):
    """Processor time of a whole run, the least of many: what else runs on the machine does not count."""
    session = target.session(artifact, folder, threads=1)
    spent = []
    for _ in range(runs):
        start = time.process_time()
        session.run(feed)
        spent.append(time.process_time() - start)
    return 1e3 * min(spent[runs // 4 :])


def encoder(folder):
    """The sentence encoder of the recipe, and tokens of 128 words."""
    from quant.engine.bind import bind
    from quant.engine.cache import StageCache
    from quant.engine.prepare import prepare
    from quant.recipe.load import load_recipe
    from quant.recipe.shipped import shipped

    bound = bind(load_recipe(shipped()["text-similarity"]), trust_code=False)
    path = prepare(bound, StageCache(folder), trust_code=False).path
    draw = np.random.default_rng(0)
    ones = np.ones((1, 128), np.int64)
    return path, {"input_ids": draw.integers(1000, 20000, (1, 128)), "attention_mask": ones, "token_type_ids": 0 * ones}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("kind", KINDS)
def test_measured_prices_of_the_sentence_encoder_add_up_to_what_the_engine_takes(kind, tmp_path, record_property):
    target = engine(kind)
    path, feed = encoder(tmp_path / "cache")
    proto = ir.to_proto(ir.load(path))
    for tensor in proto.graph.initializer:
        assert not tensor.external_data or (path.parent / tensor.external_data[0].value).is_file()
    profiles, whole = {}, {}
    for scheme in ("fp32", "int8"):
        model = ir.load(path)
        layers = find_layers(model)
        outputs = {layer.name: str(layer.node.outputs[0].name) for layer in layers}
        if scheme == "int8":
            how = SCHEMES.make("int8", {"correct_bias": False})
            plan = how.plan(model, layers, target.dialect)
            needs = how.needs(model, plan, target.dialect)
            how.apply(model, plan, Evidence({**needs.known, **dict.fromkeys(needs.ranges, WIDE)}), target.dialect)
        folder = tmp_path / scheme
        artifact = target.export(model, folder, scheme=scheme)
        for _ in range(4):  # the two are timed one after the other: another process may take the core from one of them
            profiles[scheme] = target.profile(artifact, folder, [feed], outputs, threads=1, runs=25)
            whole[scheme] = least(target, artifact, folder, feed, 40)
            if profiles[scheme].kernel_ms == pytest.approx(whole[scheme], rel=0.15):
                break
    int8 = [layer.name for layer in find_layers(ir.load(path)) if layer.op == "MatMul"]
    work = model_work(path, feed, dialect=target.dialect)
    formats = {one.layer: ("fp32", "int8") if one.layer in int8 else ("fp32",) for one in work.layers}
    conversions = {"int8": ConversionTimes(enter=((1000, 1e-3), (1_000_000, 0.2)), leave=((1000, 1e-3), (1_000_000, 0.2)))}
    table = COSTS.make("measured").table(Setting(work, formats, target=kind, profiles=profiles, conversions=conversions))
    for scheme in ("fp32", "int8"):
        total = table.total({name: scheme if scheme in fs else "fp32" for name, fs in formats.items()})
        kernels = profiles[scheme].kernel_ms
        record_property("figure", f"{kind} {scheme}: {total:.2f} ms by the table, {kernels:.2f} ms by the kernels, {whole[scheme]:.2f} ms by the clock")
        assert total == pytest.approx(whole[scheme], rel=0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_of_a_small_graph_has_a_price_in_time(kind, tmp_path):
    target, proto = engine(kind), convolutions()
    profiles = {}
    for scheme in ("fp32", "int8"):
        artifact, outputs = exported(proto, target, tmp_path / scheme, scheme)
        profiles[scheme] = target.profile(artifact, tmp_path / scheme, [zoo.feed(proto)], outputs, threads=1, runs=3)
    work = model_work(write_model(ir.from_proto(proto), tmp_path / "model"), zoo.feed(proto), dialect=target.dialect)
    formats = dict.fromkeys(outputs, ("fp32", "int8"))
    conversions = {"int8": ConversionTimes(enter=((1000, 1e-3),), leave=((1000, 1e-3),))}
    table = COSTS.make("measured").table(Setting(work, formats, profiles=profiles, conversions=conversions))
    # Between uniform plans only what they share (the softmax, what is no kernel) is averaged.
    shared = abs(profiles["fp32"].total_ms - profiles["int8"].total_ms)
    for scheme, profile in profiles.items():
        assert abs(table.total(dict.fromkeys(outputs, scheme)) - profile.total_ms) <= shared + 0.5 * profile.total_ms
    assert "fp32>int8" in next(b.prices for b in table.boundaries if b.tensor == "x") or kind != "onnxruntime"
