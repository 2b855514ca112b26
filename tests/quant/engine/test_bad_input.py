"""Whatever is wrong with what is brought: exit code 2, `where: what, with the value`, a hint, no traceback, nothing half-written."""

import json
import re
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

RECIPES = {
    "unknown key": ({"shcemes": ["int8"]}, r"recipe.yaml:\d+: unknown key 'shcemes'", "did you mean 'schemes'"),
    "wrong type": ({"calibration": {"minimum": "many"}}, r"recipe.yaml:\d+: calibration.minimum: expected a whole number, got 'many'", ""),
    "unknown scheme": ({"schemes": ["int9"]}, r"recipe.yaml:\d+: unknown scheme 'int9'", "did you mean 'int8'"),
    "unknown target": ({"targets": ["onnxruntim"]}, r"recipe.yaml:\d+: unknown target 'onnxruntim'", "did you mean 'onnxruntime'"),
    "unknown metric": ({"evaluation": {"metrics": ["acuracy"]}}, r"recipe.yaml:\d+: unknown metric 'acuracy'", "did you mean 'accuracy'"),
    "unknown calibrator": ({"calibration": {"calibrator": "minmx"}}, r"recipe.yaml:\d+: unknown calibrator 'minmx'", "did you mean 'minmax'"),
    "unknown option": ({"schemes": [{"kind": "int8", "exclud": ["x"]}]}, r"recipe.yaml:\d+: unknown option|unknown key 'exclud'", "exclude"),
    "option of a wrong type": ({"schemes": [{"kind": "int8", "per_channel": 3}]}, r"recipe.yaml:\d+: .*per_channel.*true or false, got 3", ""),
    "gate on an unknown metric": ({"gate": {"metric": "acuracy"}}, r"recipe.yaml:\d+: the gate's metric 'acuracy' is none of evaluation.metrics", "accuracy"),
    "two schemes of one name": ({"schemes": ["int8", {"kind": "int8"}]}, r"recipe.yaml:\d+: two schemes are called 'int8'", "name: int8-2"),
    "a scheme called as the baseline": (
        {"schemes": ["int8", {"kind": "int8", "name": "fp32"}]},
        r"recipe.yaml:\d+: no scheme can be called 'fp32'",
        "name: my-int8",
    ),
    "more threads than any machine has": ({"latency": {"threads": 100000}}, r"recipe.yaml:\d+: latency.threads: expected a number of at most 1024", ""),
    "resamples without end": ({"gate": {"resamples": 10**8}}, r"recipe.yaml:\d+: gate.resamples: expected a number of at most 1000000", ""),
    "a condition without a bound": ({"data": {"where": [{"column": "y"}]}}, r"recipe.yaml:\d+: .*no bound is given", ""),
    "pooling of an ONNX file": ({"model": {"pooling": "mean"}}, r"recipe.yaml:\d+: model.pooling means nothing for a model of kind 'onnx'", "leave"),
    "arguments of an ONNX file": ({"model": {"arguments": {"a": 1}}}, r"recipe.yaml:\d+: model.arguments means nothing for a model of kind 'onnx'", "leave"),
    "a file for a Hugging Face folder": ({"model": {"kind": "huggingface"}}, r"recipe.yaml:\d+: kind 'huggingface' needs a folder, not a file", "config.json"),
    "a metric along no axis": (
        {"evaluation": {"metrics": [{"kind": "accuracy", "axis": 5}]}},
        r"recipe.yaml:\d+: metric accuracy, evaluation sample \d+: output of shape \[10\] has no axis 5",
        "the batch axis does not count",
    ),
    "pattern of no layer": (
        {"schemes": [{"kind": "int8", "exclude": ["dense/frist"]}]},
        r"recipe.yaml:\d+: pattern 'dense/frist' matches no layer",
        "dense/first",
    ),
    "fidelity of no output": (
        {"evaluation": {"fidelity_output": "logit"}},
        r"recipe.yaml:\d+: evaluation.fidelity_output: the model has no output 'logit'",
        "logits",
    ),
    "metric on no output": (
        {"evaluation": {"metrics": [{"kind": "accuracy", "output": "logit"}]}},
        r"recipe.yaml:\d+: metric accuracy: the model has no output 'logit'",
        "logits",
    ),
    "state of no input": ({"model": {"state": {"h": "logits"}}}, r"recipe.yaml:\d+: model.state: the model has no input 'h'", "known: x"),
    "state of no output": ({"model": {"state": {"x": "h"}}}, r"recipe.yaml:\d+: model.state: the model has no output 'h'", "logits"),
    "state that does not fit": (
        {"model": {"state": {"x": "logits"}}},
        r"recipe.yaml:\d+: model.state: output .*logits.* cannot feed input .*x",
        "after a step",
    ),
    "batch axis of no input": ({"model": {"batch_axes": {"images": 0}}}, r"recipe.yaml:\d+: model.batch_axes: the model has no input 'images'", "known: x"),
    "batch axis beyond the rank": ({"model": {"batch_axes": {"x": 2}}}, r"recipe.yaml:\d+: model.batch_axes: input .* has no axis 2", "counted from 0"),
    "head on no output": (
        {"model": {"head": {"output": "embeding"}}, "data": {"splits": {"train": 500}}},
        r"recipe.yaml:\d+: model.head.output: the model has no output 'embeding'",
        "embedding",
    ),
    "missing model": ({"model": {"source": "digit.onnx"}}, r"recipe.yaml:\d+: .*digit.onnx", ""),
    "missing data": ({"data": {"source": "digit.npz"}}, r"recipe.yaml:\d+: .*digit.npz", ""),
    "wrong SHA-256 of the model": ({"model": {"sha256": "0" * 64}}, "recipe.yaml:.*SHA-256", ""),
    "wrong SHA-256 of the data": ({"data": {"sha256": "0" * 64}}, "recipe.yaml:.*SHA-256", ""),
    "no column for the label": ({"data": {"label": {"column": "z"}}}, r"recipe.yaml:\d+: no column 'z' for the label", "known: x, y"),
    "metric without labels": ({"data": {"label": None}}, r"evaluation sample \d+ \(metric accuracy\): no label", "data.label"),
    "too few for calibration": ({"data": {"splits": {"calibration": 8}}}, r"recipe.yaml:\d+: 8 calibration samples, the recipe wants at least 16", "lower"),
    "too few for evaluation": (
        {"evaluation": {"minimum": 900}},
        r"recipe.yaml:\d+: 700 evaluation samples, the recipe wants at least 900",
        "lower evaluation.minimum",
    ),
    "no evaluation samples": (
        {"data": {"splits": {"calibration": 1797, "evaluation": "rest"}}},
        r"recipe.yaml:\d+: evaluation gets no samples",
        "ask for fewer samples for the others",
    ),
    "untrusted metric": ({"evaluation": {"metrics": [{"kind": "function", "function": "metric:count"}]}}, r"recipe.yaml:\d+: .*metric:count", "--trust-code"),
    "untrusted model": ({"model": {"source": "module:build", "kind": "torch"}}, r"recipe.yaml:\d+: .*module:build", "--trust-code"),
    "untrusted data": ({"data": {"source": "module:rows", "kind": "function"}}, r"recipe.yaml:\d+: .*module:rows", "--trust-code"),
    "negative drop": ({"gate": {"max_drop": -1}}, r"recipe.yaml:\d+: gate.max_drop: expected a number of at least 0.*, got -1", ""),
}


@pytest.mark.parametrize(("changes", "message", "hint"), RECIPES.values(), ids=RECIPES)
def test_a_recipe_that_cannot_be_run_is_refused_before_any_work(refused, monkeypatch, changes, message, hint):
    from quant.stages import calibrate as work

    monkeypatch.setattr(work, "Runtime", None)  # calibration would not even start
    said = refused(changes)
    assert re.search(message, said.replace("\n", " ")), said
    assert hint in said
    if hint:
        assert "\nhint: " in said


def _png(path):
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))


def _zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", "x")


FILES = {
    "a picture": (_png, "not an ONNX model but a PNG picture"),
    "an archive": (_zip, "not an ONNX model but a zip archive"),
    "JSON": (lambda p: p.write_text(json.dumps({"model": 1})), "not an ONNX model but JSON text"),
    "a pickle": (lambda p: p.write_bytes(b"\x80\x04\x95" + bytes(20)), "not an ONNX model but a pickle"),
    "text": (lambda p: p.write_text("These are the weights of my model.\n" * 9), "not an ONNX model"),
    "nothing": (lambda p: p.write_bytes(b""), "not an ONNX model"),
    "half a model": (lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]), "not an ONNX model"),
    "noise": (lambda p: p.write_bytes(np.random.default_rng(1).bytes(5000)), "not an ONNX model"),
}


@pytest.mark.parametrize(("spoil", "message"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_model_is_named_for_what_it_is(refused, project, spoil, message):
    spoil(project.folder / "digits.onnx")
    said = refused()
    assert f"{project.folder / 'digits.onnx'}: {message}" in said
    assert "\nhint: " in said


@pytest.mark.parametrize("name", ["model.pth", "model.safetensors", "model.bin"])
def test_a_checkpoint_is_not_loaded(refused, project, name):
    _zip(project.folder / name)
    said = refused({"model": {"source": name}})
    assert name in said
    assert "weights without a network" in said
    assert "\nhint: " in said


def test_a_model_with_another_ending_is_an_onnx_model_all_the_same(cli, project):
    (project.folder / "digits.onnx").rename(project.folder / "digits.model")
    project.write({"model": {"source": "digits.model"}})
    assert cli("evaluate", project.recipe).code == 0


def test_another_file_of_the_same_name_is_another_model(cli, project, digits):
    (project.folder / "digits.onnx").rename(project.folder / "digits.model")
    project.write({"model": {"source": "digits.model"}})
    good = cli("evaluate", project.recipe).out
    (project.folder / "digits.model").rename(project.folder / "digits.onnx")
    project.weights(w1=-digits.weights["w1"])
    (project.folder / "digits.onnx").rename(project.folder / "digits.model")
    assert cli("evaluate", project.recipe).out != good


def test_a_folder_with_one_onnx_file_is_that_file(cli, project):
    (project.folder / "model").mkdir()
    (project.folder / "digits.onnx").rename(project.folder / "model" / "digits.onnx")
    project.write({"model": {"source": "model"}})
    assert cli("evaluate", project.recipe).code == 0


DATA = {
    "no samples": (lambda d: {"x": d.x[:0], "y": d.y[:0]}, "the data set is empty"),
    "labels below 0": (lambda d: {"y": np.where(np.arange(len(d.y)) % 100 == 5, -3, d.y)}, "label -3 is no class"),
    "labels beyond the logits": (lambda d: {"y": np.where(np.arange(len(d.y)) >= 1000, 12, d.y)}, "label 12 but 10 classes"),
    "labels of another kind": (lambda d: {"y": d.y + 0.5}, "is no class"),
    "another name": (lambda d: {"x": None, "images": d.x}, "nothing feeds the model's input 'x'|the model has no input 'images'"),
    "another shape": (lambda d: {"x": d.x[:, :60]}, r"input 'x' has shape \[60\], the model takes \[64\]"),
    "another rank": (lambda d: {"x": d.x.reshape(-1, 8, 8)}, r"input 'x' has shape \[8, 8\], the model takes \[64\]"),
    "another type": (lambda d: {"x": (d.x * 16).astype(np.int64)}, "input 'x' is int64, the model takes float32"),
    "different numbers": (lambda d: {"y": d.y[:100]}, "arrays of different numbers of samples"),
}


@pytest.mark.parametrize(("spoil", "message"), DATA.values(), ids=DATA)
def test_data_that_do_not_fit_are_refused(refused, project, digits, spoil, message):
    project.data(**spoil(digits))
    said = refused()
    assert re.search(message, said), said


def test_a_nan_in_the_data_is_named_by_its_sample(refused, project, digits):
    x = digits.x.copy()
    x[::3, 7] = np.nan
    project.data(x=x)
    said = refused()
    found = re.search(r"sample (\d+): input 'x' is nan at \[7\]", said)
    assert found, said
    assert int(found[1]) % 3 == 0
    assert "hint: mend or leave out this sample" in said


def test_a_nan_late_in_the_data_stops_the_run_too(refused, project, digits):
    x = digits.x.copy()
    x[1700, 7] = np.inf
    project.data(x=x)
    project.write({"data": {"splits": {"calibration": 64, "evaluation": "rest"}}})
    assert "sample 1700: input 'x' is inf at [7]" in refused()


@pytest.mark.parametrize("name", ["digits.npz", "digits.csv", "digits.parquet"])
def test_data_that_are_damaged_are_refused(refused, project, name):
    (project.folder / name).write_bytes(np.random.default_rng(2).bytes(900))
    assert name in refused({"data": {"source": name}})


def test_a_model_with_nothing_to_quantize_is_refused(refused, project):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "plain", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), project.folder / "digits.onnx")
    said = refused({"evaluation": {"metrics": []}})
    assert "no scheme finds anything to quantize in this model" in said
    assert "quant inspect" in said


def test_a_model_that_puts_out_nan_is_refused(refused, project, digits):
    project.weights(w1=np.full_like(digits.weights["w1"], -np.inf), b1=np.full_like(digits.weights["b1"], np.inf))  # their sum is NaN
    said = refused({"schemes": ["int8-dynamic"], "evaluation": {"metrics": []}})
    assert "output 'logits' of the FP32 model is not finite for 700 of 700 samples" in said
    assert "evaluation.fidelity_output" in said


def test_a_metric_that_fp32_makes_nan_is_refused(refused, project, digits):
    project.weights(w1=np.full_like(digits.weights["w1"], -np.inf), b1=np.full_like(digits.weights["b1"], np.inf))  # their sum is NaN
    said = refused({"schemes": ["int8-dynamic"], "evaluation": {"fidelity_output": "embedding"}})
    assert "the FP32 model's accuracy is nan" in said


def test_the_drop_cannot_be_a_share_of_zero(refused, project, digits):
    project.weights(w1=np.zeros_like(digits.weights["w1"]), b1=np.eye(10, dtype=np.float32)[0])
    project.data(y=np.maximum(digits.y, 1))
    said = refused({"gate": {"relative": True}})
    assert "the drop of accuracy cannot be a share of FP32's value: that is 0" in said
    assert "relative: false" in said


def test_a_source_that_is_not_here_and_may_not_be_fetched_is_refused(refused, monkeypatch):
    monkeypatch.setenv("QUANT_OFFLINE", "1")
    said = refused({"model": {"source": "package:some-model==1.0"}})
    assert "some-model" in said
    assert "QUANT_OFFLINE" in said


@pytest.mark.parametrize("command", ["run", "show", "calibrate", "evaluate"])
def test_a_folder_is_no_recipe(cli, project, command):
    arguments = ["--output", project.output] if command in {"run", "calibrate"} else []
    outcome = cli(command, project.folder, *arguments)
    assert outcome.code == 2
    assert f"{project.folder}: is a folder, not a recipe" in outcome.err
    assert "recipe.yaml" in outcome.err
    assert not project.output.exists()


def test_no_available_target_is_said_as_such(refused, monkeypatch):
    from quant.targets import Availability
    from quant.targets.onnxruntime import OnnxRuntime

    monkeypatch.setattr(OnnxRuntime, "available", lambda _self: Availability(available=False, reason="no such library", install="pip install it"))
    said = refused()
    assert "none of the recipe's targets can be used here: onnxruntime: no such library; pip install it" in said


def _typed(kind, path, weights):
    """A product with one weight, as it is in a model that is no FP32 model."""
    numpy = helper.tensor_dtype_to_np_dtype(kind)
    x, y = helper.make_tensor_value_info("x", kind, ["n", 64]), helper.make_tensor_value_info("logits", kind, ["n", 10])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["logits"])], "g", [x], [y], [onnx.numpy_helper.from_array(weights.astype(numpy), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize(("kind", "name"), [(TensorProto.FLOAT16, "float16"), (TensorProto.DOUBLE, "float64")])
def test_a_model_of_another_type_than_fp32_is_told_so(refused, project, kind, name):
    _typed(kind, project.folder / "digits.onnx", np.ones((64, 10)))
    said = refused({"data": {"inputs": {"kind": "arrays", "dtypes": {"x": name}}}})
    assert f"the model computes in {'FLOAT16' if name == 'float16' else 'DOUBLE'}, not in FP32" in said


def test_a_model_that_is_quantized_dynamically_already_is_told_so(refused, project):
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(project.folder / "digits.onnx", project.folder / "digits.onnx")
    assert "the model is quantized already" in refused()


def test_a_model_whose_output_is_no_tensor_is_told_so(refused, project):
    """scikit-learn's classifiers give, by default, a list of dictionaries."""
    model = onnx.load(project.folder / "digits.onnx")
    scores = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [])))
    model.graph.node.append(helper.make_node("ZipMap", ["logits"], ["scores"], domain="ai.onnx.ml", classlabels_int64s=list(range(10))))
    model.graph.output.append(helper.make_value_info("scores", scores))
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    onnx.save(model, project.folder / "digits.onnx")
    said = refused()
    assert "digits.onnx: output 'scores' is no tensor but a sequence" in said
    assert "zipmap" in said


def test_rows_that_are_all_the_same_are_said_to_be(refused, project):
    np.savez(project.folder / "digits.npz", x=np.zeros((40, 64), np.float32), y=np.zeros(40, np.int64))
    assert "evaluation gets no samples: 40 rows in all, 1 with inputs of their own" in refused()
