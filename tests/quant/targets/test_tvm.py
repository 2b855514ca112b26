"""Apache TVM as a target: what it computes, and what its audit reads from TVM's own functions."""

import importlib.util
import json
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from quant.core.documents import LayerChoice, PrecisionPlan
from quant.core.formats import Range
from quant.errors import TargetError
from quant.graph.layers import find_layers
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS

tvm = pytest.importorskip("tvm", reason="Apache TVM is an optional extra: pip install 'quant-toolkit[tvm]'")

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)
node, draw = zoo.node, zoo.draw

BYTES = {"s": np.float32(0.03), "z": np.uint8(117), "ws": np.float32(0.01), "wz": np.int8(0)}


def exported(proto, folder, scheme="fp32"):
    """(target, artifact) of a graph as it is."""
    target = TARGETS.make("tvm")
    return target, target.export(ir.from_proto(proto), folder, scheme=scheme)


def audited(target, artifact, proto, folder):
    """Layer -> (format, kernel) of a graph as it is, all layers planned in INT8."""
    choices = tuple(LayerChoice(layer=x.name, op=x.op, format="int8", reason="test") for x in find_layers(ir.from_proto(proto)))
    plan = PrecisionPlan(scheme=artifact.scheme, base="int8", layers=choices)
    return {row.layer: (row.runs, row.kernel) for row in target.audit(artifact, folder, plan, {}).rows}


def computed(proto, folder, feed):
    """(outputs, what `audited` gives) of a graph as it is."""
    target, artifact = exported(proto, folder)
    return target.session(artifact, folder, threads=1).run(feed), audited(target, artifact, proto, folder)


def quantized(proto, kind="int8", seeds=range(4)):
    """The graph in TVM's dialect, with ranges of a few feeds, and its plan."""
    target, scheme, model = TARGETS.make("tvm"), SCHEMES.make(kind), ir.from_proto(proto)
    plan = scheme.plan(model, find_layers(model), target.dialect)
    needs = scheme.needs(model, plan, target.dialect)
    watched = ir.from_proto(proto)
    given = {v.name for v in (*watched.graph.inputs, *watched.graph.outputs)}
    watched.graph.outputs.extend(v for n in watched.graph for v in n.outputs if v.name in needs.ranges and v.name not in given)
    runtime = Runtime(watched, optimize=False)
    runs = [runtime.run(zoo.feed(proto, seed)) | zoo.feed(proto, seed) for seed in seeds]
    ranges = {name: Range(min(float(r[name].min()) for r in runs), max(float(r[name].max()) for r in runs)) for name in needs.ranges}
    done = scheme.apply(model, plan, Evidence({**ranges, **needs.known}), target.dialect)
    return model, done


def pair(name, *, scale="s", zero="z"):
    """Nodes that quantize and dequantize `name` to `name`d."""
    return [node("QuantizeLinear", f"{name} {scale} {zero}", f"{name}q"), node("DequantizeLinear", f"{name}q {scale} {zero}", f"{name}d")]


def codes(*shape, seed=3):
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)


# The numbers of INT8 graphs are those of the ONNX standard: integer sums are exact, and so is their way to FP32 below 2**24.
# What is left is the rounding of a few FP32 operations: this is four times the relative error of one.
CLOSE = 5e-7


def conv(weights, shape, **attributes):
    """x -> Q/DQ -> Conv with a weight in INT8 -> y."""
    nodes = [*pair("x"), node("DequantizeLinear", "w ws wz", "wd"), node("Conv", "xd wd", "y", "layer", **attributes)]
    return zoo.model(nodes, {"x": shape}, {"y": None}, BYTES | {"w": weights})


slow = pytest.mark.slow
CONVOLUTIONS = {
    "pointwise": lambda: conv(codes(24, 10, 1, 1), ["N", 10, 7, 7]),
    "with borders, strides and dilations": lambda: conv(codes(32, 3, 3, 3), ["N", 3, 17, 13], pads=[2, 1, 0, 2], strides=[2, 1], dilations=[1, 2]),
    "of odd sizes": lambda: conv(codes(5, 6, 2, 3), ["N", 6, 9, 11]),
    "by channel": lambda: conv(codes(16, 1, 3, 3), ["N", 16, 8, 8], group=16, pads=[1, 1, 1, 1]),
    "by channel, an odd number": lambda: conv(codes(7, 1, 5, 5), ["N", 7, 9, 9], group=7, strides=[2, 2], pads=[2, 2, 2, 2]),
    "in groups": lambda: conv(codes(12, 5, 3, 3), ["N", 15, 6, 6], group=3, pads=[1, 1, 1, 1]),
    "in one dimension": lambda: conv(codes(8, 4, 5), ["N", 4, 20], pads=[2, 2]),
    "in three dimensions": lambda: conv(codes(4, 2, 3, 3, 3), ["N", 2, 6, 5, 6], pads=[1, 1, 1, 1, 1, 1]),
}


@pytest.mark.parametrize("kind", [k if k in {"with borders, strides and dilations", "by channel"} else pytest.param(k, marks=slow) for k in CONVOLUTIONS])
def test_a_convolution_of_codes_is_exact_and_seen_in_integers(tmp_path, kind):
    proto = CONVOLUTIONS[kind]()
    feed = zoo.feed(proto, 0, scale=2.0)
    expected = ReferenceEvaluator(proto).run(None, feed)[0]
    found, layers = computed(proto, tmp_path, feed)
    np.testing.assert_allclose(found["y"], expected, rtol=CLOSE, atol=CLOSE * np.abs(expected).max())
    runs, kernel = layers["layer"]
    assert runs == "int8"
    assert kernel.startswith("uint8 x int8 -> int32")


def product(right, *, left_shape, right_shape=None, scale="s", zero="z"):
    """x -> Q/DQ -> MatMul <- Q/DQ <- v, or <- weight."""
    inputs = {"x": left_shape} | ({"v": right_shape} if right_shape else {})
    other = pair("v", scale=scale, zero=zero) if right_shape else [node("DequantizeLinear", "w ws wz", "vd")]
    weights = BYTES | ({"w": right} if right is not None else {}) | {"t": np.float32(0.02), "i": np.int8(0)}
    return zoo.model([*pair("x"), *other, node("MatMul", "xd vd", "y", "layer")], inputs, {"y": None}, weights)


PRODUCTS = {
    "a weight": lambda: product(codes(18, 40), left_shape=["N", "T", 18]),
    "a stack of weights": lambda: product(codes(2, 18, 40), left_shape=[2, "T", 18]),
    "symmetric activations": lambda: product(None, left_shape=["N", 4, 6, 12], right_shape=["N", 4, 12, 9], scale="t", zero="i"),
    "activations that are not symmetric": lambda: product(None, left_shape=["N", 6, 10], right_shape=["N", 10, 7]),
    "activations of dynamic lengths": lambda: product(None, left_shape=["N", "T", "S"], right_shape=["N", "S", "T"], scale="t", zero="i"),
    "one matrix for a whole batch": lambda: product(None, left_shape=["N", 6, 10], right_shape=[10, 7], scale="t", zero="i"),
    "a vector": lambda: product(codes(18, 40), left_shape=[18]),
}


@pytest.mark.parametrize("kind", [k if k in {"a weight", "activations that are not symmetric"} else pytest.param(k, marks=slow) for k in PRODUCTS])
def test_a_product_of_codes_is_exact_and_seen_in_integers(tmp_path, kind):
    proto = PRODUCTS[kind]()
    feed = zoo.feed(proto, 0)
    expected = ReferenceEvaluator(proto).run(None, feed)[0]
    found, layers = computed(proto, tmp_path, feed)
    np.testing.assert_allclose(found["y"], expected, rtol=CLOSE, atol=CLOSE * np.abs(expected).max())
    assert layers["layer"][0] == "int8"


@slow
@pytest.mark.parametrize("kind", ["int8", "int8-dynamic"])
@pytest.mark.parametrize("graph", ["attention", "residual with relu"])
def test_a_graph_in_its_dialect_computes_what_it_means_with_every_planned_layer_in_integers(tmp_path, graph, kind):
    proto = zoo.ZOO[graph]()
    model, plan = quantized(proto, kind)
    written = ir.to_proto(model)
    target = TARGETS.make("tvm")
    artifact = target.export(model, tmp_path, scheme=kind)
    rows = target.audit(artifact, tmp_path, plan, {}).rows
    assert {row.layer for row in rows if row.planned == "int8"}
    assert [row for row in rows if not row.agrees] == []
    for seed in (7, 8):
        feed = zoo.feed(proto, seed)
        found, expected = target.session(artifact, tmp_path, threads=1).run(feed)["y"], ReferenceEvaluator(written).run(None, feed)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())  # some ten layers of CLOSE


def test_a_layer_whose_input_stays_float_is_not_called_integer_and_its_twin_is(tmp_path):
    weights = BYTES | {"w": codes(8, 8, 3, 3), "v": codes(8, 8, 3, 3, seed=4)}
    nodes = [*pair("x"), node("DequantizeLinear", "w ws wz", "wd"), node("DequantizeLinear", "v ws wz", "vd")]
    nodes += [node("Conv", "xd wd", "a", "first"), node("Conv", "x vd", "b", "second"), node("Add", "a b", "y")]
    proto = zoo.model(nodes, {"x": ["N", 8, 6, 6]}, {"y": None}, weights)
    _, found = computed(proto, tmp_path, zoo.feed(proto, 0))
    assert {name: runs for name, (runs, _) in found.items()} == {"first": "int8", "second": "fp32"}
    assert found["second"][1] == "float32 -> float32"


def test_layers_of_one_shape_are_told_apart_by_their_names(tmp_path):
    weights = BYTES | {f"w{i}": codes(16, 16, seed=i) for i in range(4)}
    nodes = [node("DequantizeLinear", f"w{i} ws wz", f"w{i}d") for i in range(4)]
    for i in range(4):
        before = "x" if i == 0 else f"m{i - 1}"
        nodes += pair(before) if i != 2 else []  # the third one reads floats
        nodes.append(node("MatMul", f"{before}{'' if i == 2 else 'd'} w{i}d", f"m{i}" if i < 3 else "y", f"block.{i}/MatMul"))
    proto = zoo.model(nodes, {"x": ["N", 16]}, {"y": None}, weights)
    _, layers = computed(proto, tmp_path, zoo.feed(proto, 0))
    assert {name: runs for name, (runs, _) in layers.items()} == {
        "block.0/MatMul": "int8",
        "block.1/MatMul": "int8",
        "block.2/MatMul": "fp32",
        "block.3/MatMul": "int8",
    }


def test_a_layer_that_is_not_there_is_unknown(tmp_path):
    proto = zoo.ZOO["matmul"]()
    target, artifact = exported(proto, tmp_path)
    plan = PrecisionPlan(scheme="fp32", base="fp32", layers=(LayerChoice(layer="nothing", op="MatMul", format="fp32", reason="test"),))
    row = target.audit(artifact, tmp_path, plan, {"nothing": "y"}).rows[0]
    assert (row.runs, row.kernel, row.agrees) == ("unknown", "(not found)", False)


FLOAT = (
    "grouped conv",
    "transposed conv",
    "conv 3-D",
    "attention",
    "gemm transA",
    "matmul of vectors",
    "hard swish",
    "concat of different scales",
    "average pool",
)


@slow
@pytest.mark.parametrize("graph", FLOAT)
def test_floats_are_exact_in_any_layout_and_every_layer_is_seen_in_fp32(tmp_path, graph):
    proto = zoo.ZOO[graph]()
    feed = zoo.feed(proto, 0)
    expected = ReferenceEvaluator(proto).run(None, feed)
    found, layers = computed(proto, tmp_path, feed)
    for array, reference in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(array, reference, rtol=1e-5, atol=1e-5 * np.abs(reference).max())
    assert {runs for runs, _ in layers.values()} == {"fp32"}


def test_one_library_serves_every_batch_and_every_length(tmp_path):
    proto = zoo.model([node("MatMul", "x w", "m"), node("Softmax", "m", "y", axis=-1)], {"x": ["N", "T", 16]}, {"y": None}, {"w": draw(16, 33)})
    target, artifact = exported(proto, tmp_path)
    session = target.session(artifact, tmp_path, threads=1)
    for shape in ((1, 1, 16), (3, 7, 16), (2, 64, 16)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        scores = np.exp(x.astype(np.float64) @ draw(16, 33))
        np.testing.assert_allclose(session.run({"x": x})["y"], scores / scores.sum(axis=-1, keepdims=True), rtol=5e-6)


def test_exponentials_and_the_normal_distribution_are_those_of_float64(tmp_path):
    from scipy import special

    nodes = [node("Softmax", "x", "soft", axis=-1), node("Erf", "x", "erf")]
    proto = zoo.model(nodes, {"x": ["N", 4096]}, {"soft": None, "erf": None})
    x = np.linspace(-100, 5, 4096, dtype=np.float32).reshape(1, -1)
    found, _ = computed(proto, tmp_path, {"x": x})
    exact = special.softmax(x.astype(np.float64), axis=-1)
    near = exact > 1e-36  # below, FP32 has fewer digits, and none below 1e-38
    # What is taken to the power lies up to 105 below the largest: rounded to 24 bits it is off by 2**-18, and the power by as much of itself.
    np.testing.assert_allclose(found["soft"][near], exact[near], rtol=2**-18 + CLOSE)
    assert (found["soft"][~near] <= 2e-36).all()
    np.testing.assert_allclose(found["erf"], special.erf(x.astype(np.float64)), rtol=1e-6, atol=5e-7)


def test_a_gather_reads_no_memory_but_its_table(tmp_path):
    proto = zoo.model([node("Gather", "table i", "y", axis=0)], {"i": [5]}, {"y": None}, {"table": draw(6, 16)}, types={"i": TensorProto.INT64})
    found = computed(proto, tmp_path, {"i": np.array([0, 5, -1, -6, 99])})[0]["y"]
    np.testing.assert_array_equal(found, draw(6, 16)[[0, 5, 5, 0, 5]])


def test_results_depend_neither_on_threads_nor_on_who_else_runs(tmp_path):
    proto = zoo.ZOO["residual with relu"]()
    model, _ = quantized(proto)
    target = TARGETS.make("tvm")
    artifact = target.export(model, tmp_path, scheme="int8")
    feeds = [zoo.feed(proto, seed) for seed in range(8)]
    one, two = (target.session(artifact, tmp_path, threads=n) for n in (1, 2))
    expected = [one.run(f)["y"] for f in feeds]
    for f, array in zip(feeds, expected, strict=True):
        np.testing.assert_array_equal(two.run(f)["y"], array)
    with ThreadPoolExecutor(3) as pool:
        for array, found in zip(expected, pool.map(two.run, feeds), strict=True):
            np.testing.assert_array_equal(found["y"], array)


def test_worker_threads_sleep_between_runs(tmp_path):
    proto = zoo.model([node("MatMul", "x w", "y")], {"x": [64, 256]}, {"y": None}, {"w": draw(256, 256)})
    target, artifact = exported(proto, tmp_path)
    session = target.session(artifact, tmp_path, threads=2)
    for _ in range(3):
        session.run(zoo.feed(proto, 0))
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05  # a worker that spins takes as much as passes


@slow
def test_the_same_graph_is_listed_in_the_same_bytes(tmp_path):
    proto = zoo.ZOO["attention"]()
    artifacts = [target.export(quantized(proto)[0], tmp_path / n, scheme="int8") for n, target in ((n, TARGETS.make("tvm")) for n in "ab")]
    assert artifacts[0].files == artifacts[1].files
    assert set(artifacts[0].files) >= {"model.onnx", "functions.json", "build.json"}
    assert str(tmp_path) not in (tmp_path / "a" / "build.json").read_text(encoding="utf-8")


@slow
def test_without_the_instruction_for_bytes_results_are_the_same(tmp_path):
    from quant.targets.relax.building import build_library
    from quant.targets.relax.running import RelaxSession

    proto = CONVOLUTIONS["pointwise"]()
    feed = zoo.feed(proto, 0)
    layer = build_library(ir.from_proto(proto), tmp_path / "old.so", cpu="x86-64-v3" if platform.machine() == "x86_64" else "generic")["layer"]
    assert (layer.runs, layer.instruction) == ("int8", "")
    found = RelaxSession(tmp_path / "old.so", inputs=["x"], outputs=["y"], threads=1).run(feed)["y"]
    expected = ReferenceEvaluator(proto).run(None, feed)[0]
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE * np.abs(expected).max())


def test_what_tvm_lacks_is_refused_with_the_node_and_its_own_words(tmp_path):
    proto = zoo.model([node("Det", "x", "y", "determinant")], {"x": [2, 3, 3]}, {"y": [2]})
    with pytest.raises(TargetError, match=r"node 'determinant' \(Det\): TVM cannot import the model: .*not supported for frontend ONNX: Det"):
        exported(proto, tmp_path)


def test_what_tvm_cannot_compile_is_refused_in_its_own_words(tmp_path):
    inputs = {"boxes": [1, 4, 4], "scores": [1, 1, 4]}
    proto = zoo.model([node("NonMaxSuppression", "boxes scores", "y")], inputs, {"y": None}, types={"y": TensorProto.INT64})
    with pytest.raises(TargetError, match=r"TVM cannot compile the model: InternalError: .*used before its definition"):
        exported(proto, tmp_path)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_pads_may_depend_on_a_dynamic_shape(tmp_path, mode):
    proto = conv(codes(8, 3, 3, 4), ["N", 3, "H", "W"], auto_pad=mode, strides=[2, 1])
    target, artifact = exported(proto, tmp_path)
    session = target.session(artifact, tmp_path, threads=1)
    for size in ((7, 9), (8, 4)):
        x = np.random.default_rng(0).normal(size=(2, 3, *size)).astype(np.float32)
        expected = ReferenceEvaluator(proto).run(None, {"x": x})[0]
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=CLOSE, atol=CLOSE * np.abs(expected).max())


def test_a_feed_of_a_wrong_shape_is_refused_with_its_shape(tmp_path):
    target, artifact = exported(zoo.ZOO["matmul"](), tmp_path)
    session = target.session(artifact, tmp_path, threads=1)
    with pytest.raises(TargetError, match=r"TVM cannot run the model on x float32\[2, 15\]"):
        session.run({"x": np.zeros((2, 15), np.float32)})


def test_a_library_for_another_cpu_or_another_tvm_is_refused(tmp_path):
    target, artifact = exported(zoo.ZOO["matmul"](), tmp_path)
    built = json.loads((tmp_path / "build.json").read_text(encoding="utf-8"))
    (tmp_path / "build.json").write_text(json.dumps(built | {"cpu": "pentium"}), encoding="utf-8")
    with pytest.raises(TargetError, match=r"built elsewhere: cpu 'pentium', here '.+'"):
        target.session(artifact, tmp_path, threads=1)


def test_a_damaged_artifact_is_refused(tmp_path):
    target, artifact = exported(zoo.ZOO["matmul"](), tmp_path)
    (tmp_path / "model.so").write_bytes(b"no library")
    with pytest.raises(TargetError, match=r"model\.so: TVM cannot load the library"):
        target.session(artifact, tmp_path, threads=1)
    (tmp_path / "functions.json").write_text("{", encoding="utf-8")
    with pytest.raises(TargetError, match=r"functions\.json: cannot be read"):
        target.audit(artifact, tmp_path, PrecisionPlan(scheme="fp32", base="fp32", layers=()), {})


def test_halves_are_widened_and_audited_as_what_they_are_computed_in(tmp_path):
    proto = zoo.ZOO["gemm"]()
    target, scheme, model = TARGETS.make("tvm"), SCHEMES.make("fp16"), ir.from_proto(proto)
    plan = scheme.plan(model, find_layers(model), target.dialect)
    done = scheme.apply(model, plan, Evidence({}, {}), target.dialect)
    artifact = target.export(model, tmp_path, scheme="fp16")
    row = target.audit(artifact, tmp_path, done, {}).rows[0]
    assert (row.runs, row.kernel) == ("fp32", "float16 -> float32")
    assert "FP32" in target.emulates("fp16")
    feed = zoo.feed(proto, 0)
    exact = ReferenceEvaluator(proto).run(None, feed)[0]
    # Input, weight, bias and output are each rounded to 11 bits: 2**-11 of each, added up over 16 products.
    np.testing.assert_allclose(target.session(artifact, tmp_path, threads=1).run(feed)["y"], exact, atol=4 * 2**-11 * np.abs(exact).max())


@pytest.mark.parametrize(("missing", "reason"), [("tvm", "not installed"), ("tvm.support.cc", "cannot be imported")])
def test_without_tvm_it_says_how_to_get_it(missing, reason):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from quant.targets import TARGETS\n"
        "here = TARGETS.make('tvm').available()\n"
        f"assert not here.available and {reason!r} in here.reason and here.install == \"pip install 'quant-toolkit[tvm]'\", here"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_a_compiler_it_says_that_one_is_needed(monkeypatch):
    import tvm.support.cc

    monkeypatch.setattr(tvm.support.cc, "get_cc", lambda: None)
    here = TARGETS.make("tvm").available()
    assert (here.available, "C++ compiler" in here.reason, "g++" in here.install) == (False, True, True)


def test_the_pool_of_each_thread_has_its_own_count(tmp_path):
    from tvm_ffi import get_global_func

    proto = zoo.ZOO["matmul"]()
    target, artifact = exported(proto, tmp_path)
    seen = []

    def use(count):
        target.session(artifact, tmp_path, threads=count).run(zoo.feed(proto, 0))
        seen.append(get_global_func("runtime.NumThreads")())

    for count in (2, 1):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(use, count).result()
    assert seen == [2, 1]
