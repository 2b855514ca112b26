"""Engines of TensorRT-RTX, built without a GPU; what they run is read from their own lists of layers."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from pydantic import ValidationError

from quant.api import run
from quant.core.documents import AuditRow
from quant.core.formats import Range
from quant.errors import TargetError
from quant.graph.body import write_body
from quant.graph.importing import raise_opset
from quant.graph.layers import find_layers
from quant.graph.model import add_initializer, read_model
from quant.graph.plain import plain
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS, Shapes
from quant.targets.nvidia import building

INSTALLED = importlib.util.find_spec("tensorrt_rtx") is not None
builds = pytest.mark.skipif(not INSTALLED, reason="TensorRT-RTX is not installed")


def load_zoo():
    spec = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ZOO = load_zoo()
node, draw = ZOO.node, ZOO.draw


def conv(group=1, channels=32, rows=1):
    weights = {"w": draw(32, channels // group, 3, 3), "b": draw(32, seed=2)}
    nodes = [node("Conv", "x w b", "c", "conv", pads=[1, 1, 1, 1], group=group), node("Relu", "c", "y", "relu")]
    return ZOO.model(nodes, {"x": [rows, channels, 16, 16]}, {"y": [rows, 32, 16, 16]}, weights)


def residual():
    weights = {"w1": draw(32, 32, 3, 3), "w2": draw(32, 32, 3, 3, seed=2)}
    nodes = [node("Relu", "x", "r", "first"), node("Conv", "r w1", "a", "conv1", pads=[1, 1, 1, 1]), node("Relu", "a", "b", "middle")]
    nodes += [node("Conv", "b w2", "c", "conv2", pads=[1, 1, 1, 1]), node("Add", "c r", "d", "add"), node("Relu", "d", "y", "last")]
    return ZOO.model(nodes, {"x": [1, 32, 16, 16]}, {"y": [1, 32, 16, 16]}, weights)


def gemm():
    return ZOO.model([node("Gemm", "x w b", "y", "gemm", transB=1)], {"x": [4, 64]}, {"y": [4, 32]}, {"w": draw(32, 64), "b": draw(32, seed=2)})


def product():
    nodes = [node("MatMul", "x w", "m", "product"), node("Add", "m b", "y", "add")]
    return ZOO.model(nodes, {"x": [2, 8, 64]}, {"y": [2, 8, 32]}, {"w": draw(64, 32), "b": draw(32, seed=2)})


def attention():
    nodes = [node("MatMul", f"x w{a}", a, f"project_{a}") for a in "qkv"]
    nodes += [node("Reshape", f"{a} heads", f"{a}r") for a in "qkv"]
    nodes += [node("Transpose", f"{a}r", f"{a}t", perm=[0, 2, 3, 1] if a == "k" else [0, 2, 1, 3]) for a in "qkv"]
    nodes += [node("MatMul", "qt kt", "s", "scores"), node("Mul", "s scale", "sc", "scaled"), node("Softmax", "sc", "p", "softmax", axis=-1)]
    nodes += [node("MatMul", "p vt", "o", "mix"), node("Transpose", "o", "ot", perm=[0, 2, 1, 3]), node("Reshape", "ot whole", "j")]
    nodes += [node("MatMul", "j wo", "y", "project_out")]
    weights = {f"w{a}": draw(128, 128, seed=i) for i, a in enumerate("qkvo")} | {"scale": np.float32(32**-0.5)}
    weights |= {"heads": np.array([2, 64, 4, 32]), "whole": np.array([2, 64, 128])}
    return ZOO.model(nodes, {"x": [2, 64, 128]}, {"y": [2, 64, 128]}, weights)


def quantized(proto, scheme="int8", **options):
    """The graph in the target's dialect, the plan as carried out, and the target."""
    target, how = TARGETS.make("tensorrt-rtx", options), SCHEMES.make(scheme)
    model = raise_opset(ir.from_proto(proto), target.dialect.opset)
    plan = how.plan(model, find_layers(model), target.dialect)
    done = how.apply(model, plan, Evidence({name: Range(-3.0, 3.0) for name in how.needs(model, plan, target.dialect).ranges}, {}), target.dialect)
    return model, done if scheme == "fp16" else write_body(model, done, {}, target.dialect.body), target


def audited(folder, model, plan, target):
    """Layer -> row of the audit of an engine built from `model`."""
    artifact = target.export(model, folder, scheme="int8")
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    return {row.layer: row for row in target.audit(artifact, folder, plan, {}).rows}


def scale_by_slice(model, name, length, axis):
    """Give the Q/DQ nodes whose names begin with `name` one scale for each slice along `axis`."""
    for n in model.graph:
        if n.op_type in {"QuantizeLinear", "DequantizeLinear"} and n.name.startswith(name):
            n.replace_input_with(1, add_initializer(model.graph, "slices", np.full(length, 0.02, np.float32)))
            n.replace_input_with(2, add_initializer(model.graph, "zeros", np.zeros(length, np.int8)))
            n.attributes["axis"] = ir.AttrInt64("axis", axis)


def without_pair(model, tensor):
    """Take the Q/DQ pair of a tensor out again."""
    names = {f"{tensor}_QuantizeLinear", f"{tensor}_DequantizeLinear"}
    quantize, dequantize = [n for n in model.graph if n.name in names]
    ir.convenience.replace_all_uses_with(dequantize.outputs[0], quantize.inputs[0])
    model.graph.remove([dequantize, quantize], safe=True)


@builds
@pytest.mark.parametrize(
    "proto", [conv(), conv(group=32), conv(channels=3), residual(), gemm(), product()], ids=lambda p: "+".join(n.name for n in p.graph.node)
)
def test_every_planned_layer_is_compiled_to_an_integer_kernel(tmp_path, proto):
    rows = audited(tmp_path, *quantized(proto))
    assert rows
    assert {row.runs for row in rows.values()} == {"int8"}
    assert all(row.agrees for row in rows.values())


@builds
def test_a_whole_attention_becomes_one_integer_kernel(tmp_path):
    rows = audited(tmp_path, *quantized(attention()))
    assert {row.runs for row in rows.values()} == {"int8"}
    assert {rows["scores"].kernel, rows["mix"].kernel} == {"kgen gemm_mha"}


@builds
def test_without_a_scale_behind_the_softmax_the_second_product_is_seen_to_run_in_floats(tmp_path):
    model, plan, target = quantized(attention())
    without_pair(model, "p")
    rows = audited(tmp_path, model, plan, target)
    assert (rows["scores"].runs, rows["mix"].runs, rows["mix"].agrees) == ("int8", "fp16", False)


# TensorRT takes each of these without a word, and computes in floats.
@builds
@pytest.mark.parametrize(
    ("proto", "name", "length", "axis"),
    [
        pytest.param(conv(), "x_", 32, 1, id="convolution, activations by channel"),
        pytest.param(conv(), "conv_weight", 32, 1, id="convolution, weights by input channel"),
        pytest.param(product(), "x_", 64, 2, id="product, activations by column"),
        pytest.param(product(), "product_weight", 64, 0, id="product, weights by row"),
    ],
)
def test_a_scale_along_the_wrong_axis_is_seen_as_a_fallback(tmp_path, proto, name, length, axis):
    model, plan, target = quantized(proto)
    scale_by_slice(model, name, length, axis)
    (row,) = audited(tmp_path, model, plan, target).values()
    assert (row.planned, row.runs, row.agrees) == ("int8", "fp16", False)
    assert row.kernel in {"correlation", "runtime_fusion"}


@builds
def test_fp16_runs_in_fp16_and_its_inputs_and_outputs_stay_fp32(tmp_path):
    model, plan, target = quantized(gemm(), "fp16")
    rows = audited(tmp_path, model, plan, target)
    assert [(row.runs, row.agrees) for row in rows.values()] == [("fp16", True)]
    assert {v.dtype for v in (*model.graph.inputs, *model.graph.outputs)} == {ir.DataType.FLOAT}


@builds
def test_the_session_computes_the_very_graph_that_the_engine_was_built_from(tmp_path):
    model, _plan, target = quantized(product())
    artifact = target.export(model, tmp_path, scheme="int8")
    feed = ZOO.feed(product())
    found = target.session(artifact, tmp_path, threads=1).run(feed)["y"]
    np.testing.assert_array_equal(found, plain(tmp_path / "model.onnx").run(feed)["y"])
    expected = Runtime(ir.from_proto(product())).run(feed)["y"]
    assert 0 < np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


@builds
def test_a_bf16_body_is_compiled_and_its_session_rounds_to_bf16(tmp_path):
    model, plan, target = quantized(residual(), body="bf16")
    artifact = target.export(model, tmp_path, scheme="int8")
    assert all(row.agrees for row in target.audit(artifact, tmp_path, plan, {}).rows)
    feed = ZOO.feed(residual(), scale=0.1)
    found = target.session(artifact, tmp_path, threads=1).run(feed)["y"]
    assert np.array_equal(found, found.astype(ir.DataType.BFLOAT16.numpy()).astype(np.float32))
    expected = Runtime(ir.from_proto(residual())).run(feed)["y"]
    assert 0 < np.abs(found - expected).max() < 0.1 * expected.max()


@builds
def test_an_fp32_body_keeps_its_operator_set(tmp_path):
    model, plan, target = quantized(product(), body="fp32")
    assert model.graph.opset_imports[""] == product().opset_import[0].version
    (row,) = audited(tmp_path, model, plan, target).values()
    assert (row.runs, row.agrees) == ("int8", True)


@builds
def test_each_gpu_gets_an_engine_a_log_and_a_list_of_layers_in_silence(tmp_path, capfd):
    model, plan, target = quantized(gemm(), compute_capabilities=["sm86", "sm120"])
    artifact = target.export(model, tmp_path, scheme="int8")
    assert capfd.readouterr() == ("", "")
    kinds = {f"{name}.{capability}.{end}" for capability in ("sm86", "sm120") for name, end in (("model", "engine"), ("build", "log"), ("layers", "json"))}
    assert {p.name for p in tmp_path.iterdir()} == kinds | {"model.onnx", "model.onnx.data"}
    assert artifact.size_bytes == max(p.stat().st_size for p in tmp_path.glob("*.engine"))
    assert all(row.agrees for row in target.audit(artifact, tmp_path, plan, {}).rows)


@builds
def test_a_layer_that_falls_back_on_one_gpu_alone_is_named_with_it(tmp_path):
    model, plan, _ = quantized(conv())  # for sm89
    target = TARGETS.make("tensorrt-rtx", {"compute_capabilities": ["sm89", "sm75"]})
    (row,) = audited(tmp_path, model, plan, target).values()
    assert (row.runs, row.kernel, row.agrees) == ("fp16", "correlation on sm75", False)


@builds
def test_what_has_a_digest_is_the_same_for_each_build(tmp_path):
    artifacts = []
    for folder in ("first", "second"):
        model, _, target = quantized(attention())
        artifacts.append(target.export(model, tmp_path / folder, scheme="int8"))
    assert artifacts[0] == artifacts[1]
    assert set(artifacts[0].files) == {"layers.sm89.json", "model.onnx", "model.onnx.data"}


@builds
def test_a_dynamic_input_is_built_for_the_shapes_it_is_given(tmp_path):
    model, _, target = quantized(conv(rows="N"))
    target.export(model, tmp_path, scheme="int8", shapes={"x": Shapes((1, 32, 16, 16), (2, 32, 16, 16), (8, 32, 16, 16))})
    log = (tmp_path / "build.sm89.log").read_text(encoding="utf-8")
    assert "MinShape: [1,32,16,16], OptShape: [2,32,16,16], MaxShape: [8,32,16,16]" in log


@builds
def test_shapes_of_the_recipe_go_before_those_of_the_data(tmp_path):
    profile = {"min": [1, 32, 16, 16], "opt": [4, 32, 16, 16], "max": [64, 32, 16, 16]}
    model, _, target = quantized(conv(rows="N"), profiles={"x": profile})
    target.export(model, tmp_path, scheme="int8", shapes={"x": Shapes((1, 32, 16, 16), (1, 32, 16, 16), (1, 32, 16, 16))})
    assert "OptShape: [4,32,16,16], MaxShape: [64,32,16,16]" in (tmp_path / "build.sm89.log").read_text(encoding="utf-8")


@builds
def test_a_graph_that_tensorrt_refuses_is_refused_with_the_node(tmp_path):
    target = TARGETS.make("tensorrt-rtx")
    nodes = [node("DynamicQuantizeLinear", "x", "q s z", "dynamic"), node("DequantizeLinear", "q s z", "y", "back")]
    with pytest.raises(TargetError, match=r"builds no engine for sm89: .*DynamicQuantizeLinear 'dynamic'"):
        target.export(ir.from_proto(ZOO.model(nodes, {"x": [4]}, {"y": [4]})), tmp_path, scheme="int8")


def never(*_args, **_kwargs):
    raise AssertionError("an engine was built")


@pytest.fixture
def no_build(monkeypatch):
    monkeypatch.setattr("quant.targets.tensorrt_rtx.build_engines", never)


@pytest.mark.usefixtures("no_build")
def test_a_dynamic_input_without_a_profile_is_refused_before_building(tmp_path):
    model, _, target = quantized(conv(rows="N"))
    with pytest.raises(TargetError, match=r"input 'x' has the dynamic shape .* and no profile") as caught:
        target.export(model, tmp_path, scheme="int8")
    assert "profiles: {x: {min:" in caught.value.hint


@pytest.mark.usefixtures("no_build")
@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [("x", [1, 3, 16, 16], "does not fit input 'x'"), ("x", [1, 32], "does not fit input 'x'"), ("z", [1], "names 'z', which is no input")],
)
def test_a_profile_that_does_not_fit_is_refused_before_building(tmp_path, name, shape, message):
    model, _, target = quantized(conv(rows="N"), profiles={name: {"min": shape, "opt": shape, "max": shape}})
    with pytest.raises(TargetError, match=message):
        target.export(model, tmp_path, scheme="int8")


@pytest.mark.usefixtures("no_build")
def test_a_format_that_a_gpu_does_not_have_is_refused_before_building(tmp_path):
    nodes = [node("Cast", "x", "b", "down", to=int(ir.DataType.BFLOAT16)), node("Cast", "b", "y", "up", to=int(ir.DataType.FLOAT))]
    model = ir.from_proto(ZOO.model(nodes, {"x": [4]}, {"y": [4]}))
    target = TARGETS.make("tensorrt-rtx", {"compute_capabilities": ["sm89", "sm75"]})
    with pytest.raises(TargetError, match="GPUs of compute capability sm75 have no bf16"):
        target.export(model, tmp_path, scheme="fp32")


def test_turing_plans_no_integer_convolution():
    target, how = TARGETS.make("tensorrt-rtx", {"compute_capabilities": ["sm75"]}), SCHEMES.make("int8")
    model = ir.from_proto(conv())
    (choice,) = how.plan(model, find_layers(model), target.dialect).layers
    assert (choice.format, choice.reason) == ("fp32", "the target has no integer kernel for Conv")


def test_ranges_found_while_running_are_not_applicable():
    target, how = TARGETS.make("tensorrt-rtx"), SCHEMES.make("int8-dynamic")
    model = ir.from_proto(product())
    assert how.plan(model, find_layers(model), target.dialect).quantized == ()


def test_a_residual_is_read_quantized_where_a_quantized_convolution_is_added_to_it():
    model, _, _ = quantized(residual())
    inputs = {n.name: [v.name for v in n.inputs] for n in model.graph}
    assert inputs["add"][1] == "r_dequantized"
    assert inputs["add"][0] == "c_fp16"


@pytest.mark.parametrize(
    "options",
    [{"compute_capabilities": ["sm90"]}, {"compute_capabilities": []}, {"profiles": {"x": {"min": [2], "opt": [1], "max": [2]}}}, {"workspace_mib": 0}],
)
def test_options_that_mean_nothing_are_refused(options):
    with pytest.raises(ValidationError):
        TARGETS.make("tensorrt-rtx", options)


def test_where_it_is_missing_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    here = TARGETS.make("tensorrt-rtx").available()
    assert (here.available, here.reason) == (False, "TensorRT-RTX is not installed")
    assert "pip install 'quant-toolkit[tensorrt-rtx]'" in here.install


def test_a_building_process_that_dies_is_told_with_its_last_words(tmp_path):
    files = {"sm89": building.BuildFiles(tmp_path / "e", tmp_path / "l", tmp_path / "j")}
    with pytest.raises(TargetError, match="TensorRT ended while it built an engine: ModuleNotFoundError: No module named 'no_such_module'"):
        building.build_engines("no_such_module", tmp_path / "model.onnx", files, {}, {})


@builds
def test_a_whole_run_makes_no_claim_of_time_and_counts_the_audit(project, monkeypatch):
    project.write({"targets": ["tensorrt-rtx", "onnxruntime"], "schemes": ["int8", "fp16"]})
    report = run(project.recipe, output=project.output).report
    candidates = [c for c in report.candidates if c.target == "tensorrt-rtx"]
    assert [(c.scheme, c.status, c.latency_ratio) for c in candidates] == [("int8", "measured", None), ("fp16", "measured", None)]
    assert {row.target for row in report.timings.latency} == {"onnxruntime"}
    assert all(row.agrees for c in candidates for row in c.audit)
    assert all("no GPU is used here" in c.emulated for c in candidates)
    assert json.loads((project.output / "plans" / "tensorrt-rtx" / "int8.json").read_text(encoding="utf-8"))["base"] == "int8"

    def falls_back(layers, product):
        del layers
        return "correlation", "fp16" if product.dequantizers else "fp32"

    project.write({"targets": ["tensorrt-rtx"]})
    monkeypatch.setattr("quant.targets.nvidia.exporting.kernel_of", falls_back)
    monkeypatch.setenv("QUANT_CACHE", str(project.folder / "another cache"))
    failed = run(project.recipe, output=project.output).report.candidates[0]
    assert failed.verdict == "fail"
    assert "planned in int8 run" in failed.reason
    assert isinstance(failed.audit[0], AuditRow)


@builds
def test_a_gpu_without_products_in_fp32_is_built_for_all_the_same_with_nothing_beside_the_size(project):
    """Turing: TensorRT-RTX compiles no product of matrices in FP32 for it, and all those that were quantized."""
    project.write({"targets": [{"kind": "tensorrt-rtx", "compute_capabilities": ["sm75"]}], "schemes": ["int8"]})
    report = run(project.recipe, output=project.output).report
    [candidate] = report.candidates
    assert (candidate.status, candidate.verdict, candidate.size_ratio) == ("measured", "pass", None)
    assert "no size beside FP32's: the engine refuses the model already in FP32: TensorRT builds no engine for sm75" in candidate.reason
    assert any(row.runs == "int8" for row in candidate.audit)
    assert report.baseline.size_bytes == pytest.approx((project.folder / "digits.onnx").stat().st_size, rel=0.05)  # another operator set


@builds
def test_what_is_wrong_with_every_candidate_and_fp32_alike_ends_the_run_at_the_target_in_the_recipe(project):
    profile = {name: [1, 1, 8, 8] for name in ("min", "opt", "max")}
    project.write({"targets": [{"kind": "tensorrt-rtx", "profiles": {"nothing": profile}}]})
    with pytest.raises(TargetError, match=r"recipe\.yaml:\d+: `profiles` names 'nothing', which is no input of the model\nhint: inputs: "):
        run(project.recipe, output=project.output)
    assert not project.output.exists()


def test_unnamed_layers_get_the_names_that_plans_give_them(tmp_path, monkeypatch):
    monkeypatch.setattr("quant.targets.tensorrt_rtx.build_engines", lambda _module, _path, files, *_a, **_k: [_write(f) for f in files.values()])
    model = ir.from_proto(gemm())
    (layer,) = find_layers(model)
    layer.node.name = None
    TARGETS.make("tensorrt-rtx").export(model, tmp_path, scheme="fp32")
    assert [n.name for n in read_model(tmp_path / "model.onnx").graph] == ["Gemm_y"]


def _write(files):
    files.engine.write_bytes(b"")
    files.log.write_text("", encoding="utf-8")
    files.layers.write_text("[]", encoding="utf-8")
