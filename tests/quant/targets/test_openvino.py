"""OpenVINO as a target: what it computes, what its artifact holds, and what its audit sees."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, shape_inference

from quant.core.formats import Range
from quant.errors import TargetError
from quant.graph.groups import leave_rounding_to_engine
from quant.graph.importing.opset import raise_opset
from quant.graph.layers import find_layers
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS

openvino = pytest.importorskip("openvino", reason="OpenVINO is an optional extra: pip install 'quant-toolkit[openvino]'")

DIM = 16


def graph(nodes, inputs, outputs, weights):
    """A model of float tensors; `inputs` and `outputs` are name -> shape."""
    infos = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in part.items()] for part in (inputs, outputs)]
    tensors = [helper.make_tensor(name, TensorProto.FLOAT, np.shape(a), np.asarray(a, np.float32).ravel()) for name, a in weights.items()]
    made = helper.make_model(helper.make_graph(nodes, "g", *infos, tensors), opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return ir.from_proto(shape_inference.infer_shapes(made))


def attention():
    """x -> q, k, v -> softmax(q k') v -> projection, as exporters write it; `[batch, tokens, DIM]`."""
    r = np.random.default_rng(0)
    weights = {f"w{n}": r.normal(size=(DIM, DIM)) / 4 for n in "qkvo"} | {f"b{n}": r.normal(size=DIM) / 8 for n in "qkvo"}
    nodes = []
    for n in "qkv":
        nodes += [helper.make_node("MatMul", ["x", f"w{n}"], [f"{n}0"], name=f"{n}.MatMul"), helper.make_node("Add", [f"{n}0", f"b{n}"], [n], name=f"{n}.Add")]
    nodes += [
        helper.make_node("Transpose", ["k"], ["kt"], name="k.Transpose", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"], name="scores.MatMul"),
        helper.make_node("Softmax", ["scores"], ["weights"], name="softmax"),
        helper.make_node("MatMul", ["weights", "v"], ["mixed"], name="mixed.MatMul"),
        helper.make_node("MatMul", ["mixed", "wo"], ["o0"], name="o.MatMul"),
        helper.make_node("Add", ["o0", "bo"], ["y"], name="o.Add"),
    ]
    return graph(nodes, {"x": ["n", "t", DIM]}, {"y": ["n", "t", DIM]}, weights)


def convolutions():
    """Conv -> Relu -> depthwise Conv -> Clip -> Conv, the last added to the first; then mean and Gemm."""
    r = np.random.default_rng(0)
    weights = {
        "w1": r.normal(size=(DIM, 3, 3, 3)) / 4,
        "w2": r.normal(size=(DIM, 1, 3, 3)) / 3,
        "w3": r.normal(size=(DIM, DIM, 1, 1)) / 4,
        "w4": r.normal(size=(5, DIM)),
    }
    weights |= {"b1": r.normal(size=DIM), "b3": r.normal(size=DIM), "b4": r.normal(size=5), "zero": 0.0, "six": 6.0}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="depthwise", group=DIM, pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c2", "zero", "six"], ["r2"], name="clip"),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"], name="project"),
        helper.make_node("Add", ["c3", "r1"], ["a"], name="residual"),
        helper.make_node("GlobalAveragePool", ["a"], ["p"], name="mean"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], name="classifier", transB=1),
    ]
    return graph(nodes, {"x": ["n", 3, 8, 8]}, {"y": ["n", 5]}, weights)


SHAPES = {attention: (2, 12, DIM), convolutions: (2, 3, 8, 8)}


def feed(make, seed=0):
    return {"x": np.random.default_rng(seed).normal(size=SHAPES[make]).astype(np.float32)}


def quantized(make, model, seeds=range(4)):
    """`model` in INT8 with min-max ranges, and its plan."""
    target, scheme = TARGETS.make("openvino"), SCHEMES.make("int8")
    plan = scheme.plan(model, find_layers(model), target.dialect)
    needs = scheme.needs(model, plan, target.dialect)
    watched = ir.from_proto(ir.to_proto(model))
    values = {v.name: v for node in watched.graph for v in node.outputs}
    watched.graph.outputs.extend(values[name] for name in needs.ranges if name not in {"x", "y"})
    runtime = Runtime(watched, optimize=False)
    runs = [runtime.run(feed(make, seed)) | feed(make, seed) for seed in seeds]
    ranges = {name: Range(min(float(r[name].min()) for r in runs), max(float(r[name].max()) for r in runs)) for name in needs.ranges}
    means = {
        name: np.mean([r[name].mean(axis=tuple(i for i in range(r[name].ndim) if i != 1)) for r in runs], axis=0, dtype=np.float64) for name in needs.means
    }
    return plan, scheme.apply(model, plan, Evidence(ranges, means=means), target.dialect)


@pytest.fixture(params=SHAPES, ids=lambda make: make.__name__)
def built(request, tmp_path):
    """(maker, FP32 graph, target, INT8 artifact, its folder, plan, output of each layer)."""
    before = request.param()
    model = ir.from_proto(ir.to_proto(before))
    plan, _ = quantized(request.param, model)
    target = TARGETS.make("openvino")
    outputs = {layer.name: layer.node.outputs[0].name for layer in find_layers(before)}
    return request.param, before, target, target.export(model, tmp_path / "int8", scheme="int8"), tmp_path / "int8", plan, outputs


def test_int8_is_close_to_fp32_and_every_layer_runs_in_integers(built):
    make, before, target, artifact, folder, plan, outputs = built
    assert plan.exclusions == ()
    audit = target.audit(artifact, folder, plan, outputs)
    assert {row.runs for row in audit.rows} == {"int8"}
    assert audit.disagreements == ()
    exact, found = (s.run(feed(make))["y"] for s in (Runtime(before, optimize=False), target.session(artifact, folder, threads=1)))
    assert 10 * np.log10(np.mean(exact**2) / np.mean((found - exact) ** 2)) > 25  # 41 dB of one 8-bit tensor, less 3 dB for each of five with noise of its own


def test_the_fp32_artifact_is_exact_and_audited_as_fp32(built, tmp_path):
    make, before, target, _artifact, _folder, plan, outputs = built
    artifact = target.export(ir.from_proto(ir.to_proto(before)), tmp_path / "fp32", scheme="fp32")
    found = target.session(artifact, tmp_path / "fp32", threads=1).run(feed(make))["y"]
    expected = Runtime(before, optimize=False).run(feed(make))["y"]
    # BF16, the default on some CPUs, has 8 bits: errors of 1e-3 and more. FP32 sums of some 100 terms stay well below 1e-5.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    assert {row.runs for row in target.audit(artifact, tmp_path / "fp32", plan, outputs).rows} == {"fp32"}


def test_a_product_whose_operand_stays_float_is_not_called_integer(tmp_path):
    model = attention()
    before = ir.from_proto(ir.to_proto(model))
    plan, _ = quantized(attention, model)
    pair = next(n for n in model.graph if n.op_type == "DequantizeLinear" and n.outputs[0].name == "q_dequantized")
    ir.convenience.replace_all_uses_with(pair.outputs[0], pair.inputs[0].producer().inputs[0])
    target = TARGETS.make("openvino")
    artifact = target.export(model, tmp_path, scheme="int8")
    audit = target.audit(artifact, tmp_path, plan, {layer.name: layer.node.outputs[0].name for layer in find_layers(before)})
    assert [row.layer for row in audit.disagreements] == ["scores.MatMul"]
    assert audit.disagreements[0].runs == "fp32"


def test_the_same_graph_gives_the_same_bytes_whatever_was_read_before(built, tmp_path):
    make, before, target, artifact, _folder, _plan, _outputs = built
    for other in SHAPES:
        target.export(other(), tmp_path / other.__name__, scheme="fp32")
    model = ir.from_proto(ir.to_proto(before))
    quantized(make, model)
    again = target.export(model, tmp_path / "again", scheme="int8")
    assert again == artifact
    assert set(artifact.files) == {"model.xml", "model.bin"}
    assert str(tmp_path) not in (tmp_path / "again" / "model.xml").read_text(encoding="utf-8")


def test_results_depend_neither_on_threads_nor_on_who_else_runs(built):
    make, _before, target, artifact, folder, _plan, _outputs = built
    feeds = [feed(make, seed) for seed in range(16)]
    one, two = (target.session(artifact, folder, threads=n) for n in (1, 2))
    expected = [one.run(f)["y"] for f in feeds]
    with ThreadPoolExecutor(4) as pool:
        for session in (one, two):
            for array, found in zip(expected, pool.map(session.run, feeds), strict=True):
                np.testing.assert_array_equal(found["y"], array)


def feed_forward(wide=192, narrow=128):
    """Two products with biases, the first with an activation function behind it, and a third that sums too few values for a group; `[n, t, narrow]`."""
    r = np.random.default_rng(0)
    weights = {"w1": r.normal(size=(narrow, wide)) / 11, "b1": r.normal(size=wide), "w2": r.normal(size=(wide, 48)) / 14, "w3": r.normal(size=(48, 8)) / 7}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m1"], name="up.MatMul"),
        helper.make_node("Add", ["m1", "b1"], ["a1"], name="up.Add"),
        helper.make_node("Relu", ["a1"], ["r1"], name="relu"),
        helper.make_node("MatMul", ["r1", "w2"], ["m2"], name="down.MatMul"),
        helper.make_node("MatMul", ["m2", "w3"], ["y"], name="out.MatMul"),
    ]
    return graph(nodes, {"x": ["n", "t", narrow]}, {"y": ["n", "t", 8]}, weights)


@pytest.fixture
def dynamic(tmp_path):
    """(graph of `feed_forward` in `int8-dynamic`, target, artifact, folder, plan, output of each layer)."""
    model, target, scheme = feed_forward(), TARGETS.make("openvino"), SCHEMES.make("int8-dynamic")
    outputs = {layer.name: layer.node.outputs[0].name for layer in find_layers(model)}
    plan = scheme.apply(model, scheme.plan(model, find_layers(model), target.dialect), Evidence(), target.dialect)
    artifact = target.export(ir.from_proto(ir.to_proto(model)), tmp_path / "dynamic", scheme="int8-dynamic")
    return model, target, artifact, tmp_path / "dynamic", plan, outputs


def rows(seed=0, batch=2):
    return {"x": np.random.default_rng(seed).normal(size=(batch, 5, 128)).astype(np.float32)}


def test_dynamic_int8_is_what_the_graph_says_and_every_planned_layer_is_seen_to_run_so(dynamic):
    model, target, artifact, folder, plan, outputs = dynamic
    assert {c.layer: c.format for c in plan.layers} == {"up.MatMul": "int8", "down.MatMul": "int8", "out.MatMul": "fp32"}
    assert plan.exclusions[0].reason == "it sums 48 products, no multiple of the 64 that share a scale"
    audit = target.audit(artifact, folder, plan, outputs)
    assert audit.disagreements == ()
    assert [("i8 by groups of 64" in row.kernel) for row in audit.rows] == [True, True, False]
    found, meant = (s.run(rows())["y"] for s in (target.session(artifact, folder, threads=1), Runtime(model, optimize=False)))
    plain = Runtime(feed_forward(), optimize=False).run(rows())["y"]
    # Only the order of sums differs, and with it now and then the step that a value is rounded to: far less than what rounding does.
    assert np.linalg.norm(found - meant) < 0.1 * np.linalg.norm(meant - plain)
    assert np.linalg.norm(meant - plain) < 0.03 * np.linalg.norm(plain)


def narrow_head(outputs):
    """Gemm with a bias -> Relu -> Gemm of so many outputs: OpenVINO calls the Add of a bias by the name of the Gemm."""
    r = np.random.default_rng(0)
    weights = {"w1": r.normal(size=(64, 64)) / 8, "b1": r.normal(size=64), "w2": r.normal(size=(64, outputs)) / 8, "b2": r.normal(size=outputs)}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["a"], name="relu"),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["y"], name="head"),
    ]
    return graph(nodes, {"x": ["n", 64]}, {"y": ["n", outputs]}, weights)


@pytest.mark.parametrize(("kind", "options", "runs"), [("int8-dynamic", {}, "int8"), ("int4", {"method": "rtn"}, "int4")])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_product_of_one_output_is_left_out_and_each_that_is_planned_is_seen_to_run_so(tmp_path, kind, options, runs, outputs):
    model, target, scheme = raise_opset(narrow_head(outputs), 21), TARGETS.make("openvino"), SCHEMES.make(kind, options)
    layers = find_layers(model)
    names = {layer.name: layer.node.outputs[0].name for layer in layers}
    plan = scheme.plan(model, layers, target.dialect)
    reason = "the target has such kernels from 2 outputs on, and it has 1"
    assert {c.layer: c.reason for c in plan.exclusions} == ({"head": reason} if outputs == 1 else {})
    done = scheme.apply(model, plan, Evidence(), target.dialect)
    artifact = target.export(model, tmp_path / "artifact", scheme=kind)
    audit = target.audit(artifact, tmp_path / "artifact", done, names)
    assert {row.layer: row.runs for row in audit.rows} == {"first": runs, "head": "fp32" if outputs == 1 else runs}


def test_dynamic_int8_treats_each_row_alone_whatever_the_threads(dynamic):
    _model, target, artifact, folder, _plan, _outputs = dynamic
    one, two = (target.session(artifact, folder, threads=n) for n in (1, 2))
    whole = rows(batch=6)["x"]
    together = one.run({"x": whole})["y"]
    np.testing.assert_array_equal(two.run({"x": whole})["y"], together)
    np.testing.assert_allclose(np.concatenate([one.run({"x": whole[i : i + 1]})["y"] for i in range(6)]), together, rtol=1e-4, atol=1e-4)


def test_the_artifact_itself_says_how_activations_are_quantized(dynamic):
    _model, _target, artifact, folder, _plan, _outputs = dynamic
    assert openvino.Core().compile_model(folder / artifact.main, "CPU").get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE") == 64


def test_a_dynamic_artifact_that_no_longer_asks_for_it_is_audited_as_float(dynamic):
    _model, target, artifact, folder, plan, outputs = dynamic
    path = folder / artifact.main
    said = '<DYNAMIC_QUANTIZATION_GROUP_SIZE value="64"'
    assert said in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(said, said.replace("64", "0")), encoding="utf-8")
    assert [row.layer for row in target.audit(artifact, folder, plan, outputs).disagreements] == ["up.MatMul", "down.MatMul"]


def test_groups_that_openvino_cannot_use_are_audited_as_float(dynamic):
    """With groups of 96, OpenVINO takes the sum over 192 values in integers and leaves that over 128 in float, unsaid."""
    _model, target, artifact, folder, plan, outputs = dynamic
    path = folder / artifact.main
    said = '<DYNAMIC_QUANTIZATION_GROUP_SIZE value="64"'
    path.write_text(path.read_text(encoding="utf-8").replace(said, said.replace("64", "96")), encoding="utf-8")
    assert [row.layer for row in target.audit(artifact, folder, plan, outputs).disagreements] == ["up.MatMul"]


def test_weights_in_int8_alone_leave_activations_in_float(dynamic, tmp_path):
    """OpenVINO's own default would quantize them, unasked."""
    model, target, _artifact, _folder, plan, outputs = dynamic
    leave_rounding_to_engine(model)
    artifact = target.export(model, tmp_path / "weights", scheme="weights")
    assert {row.runs for row in target.audit(artifact, tmp_path / "weights", plan, outputs).rows} == {"fp32"}


def test_outputs_keep_their_names_and_order_even_where_they_are_one_tensor(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["m"], name="relu"),
        *(helper.make_node("Identity", [a], [b], name=b) for a, b in (("m", "y"), ("m", "z"), ("x", "w"))),
    ]
    shape = ["n", 4]
    model = graph(nodes, {"x": shape, "unused": shape}, dict.fromkeys(("z", "y", "w", "m"), shape), {})
    target = TARGETS.make("openvino")
    session = target.session(target.export(model, tmp_path, scheme="fp32"), tmp_path, threads=1)
    x = np.float32([[-1, 0, 1, 2], [3, -3, 0, 1]])
    found = session.run({"x": x, "unused": x})
    assert tuple(session.outputs) == tuple(found) == ("z", "y", "w", "m")
    for name in "zym":
        np.testing.assert_array_equal(found[name], np.maximum(x, 0))
    np.testing.assert_array_equal(found["w"], x)


def test_an_operator_that_openvino_lacks_is_refused_with_its_node(tmp_path):
    node = helper.make_node("Det", ["x"], ["y"], name="determinant")
    model = graph([node], {"x": [2, 3, 3]}, {"y": [2]}, {})
    with pytest.raises(TargetError, match=r"node 'determinant' \(Det\): OpenVINO cannot read the model: No conversion rule found for operations: Det"):
        TARGETS.make("openvino").export(model, tmp_path, scheme="fp32")


def test_a_feed_of_a_wrong_shape_is_refused_with_its_shape(tmp_path):
    target, model = TARGETS.make("openvino"), attention()
    session = target.session(target.export(model, tmp_path, scheme="fp32"), tmp_path, threads=1)
    with pytest.raises(TargetError, match=r"cannot run the model on x float32\[1, 2, 3\]"):
        session.run({"x": np.zeros((1, 2, 3), np.float32)})


def test_a_damaged_artifact_is_refused(tmp_path):
    target = TARGETS.make("openvino")
    artifact = target.export(attention(), tmp_path, scheme="fp32")
    (tmp_path / "model.xml").write_text("<net", encoding="utf-8")
    with pytest.raises(TargetError, match=r"model\.xml: OpenVINO cannot compile the model"):
        target.session(artifact, tmp_path, threads=1)


def test_it_says_what_precision_it_would_have_computed_in():
    default = openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
    note = TARGETS.make("openvino").available().note
    assert note == "" if default == "f32" else default in note


def test_without_openvino_it_says_how_to_get_it():
    code = (
        "import sys; sys.modules['openvino'] = None\n"
        "from quant.targets import TARGETS\n"
        "here = TARGETS.make('openvino').available()\n"
        "assert not here.available and 'openvino' in here.reason and here.install == \"pip install 'quant-toolkit[openvino]'\", here"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
