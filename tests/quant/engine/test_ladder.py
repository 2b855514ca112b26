"""The ladder: each rung against the one before, the first layer where an engine parts, and the exit codes."""

import importlib.util
import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import quant
from quant.errors import DataError, ModelError, QuantError
from quant.graph.model import read_model, write_model
from quant.graph.runtime import Runtime
from quant.graph.unrounded import take_rounding_away
from quant.report.ladder import Ladder, ladder_text
from quant.targets import TARGETS

SPEC = importlib.util.spec_from_file_location("half_scales", Path(__file__).parents[1] / "graph" / "half_scales.py")
half_scales = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(half_scales)

ON_1_32 = pytest.mark.skipif(not version("onnxruntime").startswith("1.32."), reason="other versions of ONNX Runtime may be right")
HERE = [kind for kind in TARGETS if TARGETS.make(kind).available().available and not TARGETS.make(kind).ahead_of_time]


@pytest.fixture
def graph(tmp_path):
    """The graph whose biases ONNX Runtime breaks, and inputs for it."""
    onnx.save(half_scales.half_scales(), tmp_path / "half.onnx")
    np.savez(tmp_path / "x.npz", x=half_scales.inputs())
    return tmp_path / "half.onnx"


@pytest.fixture
def sound(finished, tmp_path):
    """A quantized graph that every engine computes, and its FP32 model."""
    made = finished.project.output / "artifacts" / "onnxruntime" / "int8" / "model.onnx"
    return write_model(read_model(made), tmp_path / "sound", single_file=True), finished.project.folder / "digits.onnx"


def rungs(found):
    return {rung.name: rung for rung in found.rungs}


@ON_1_32
def test_the_engine_that_breaks_a_graph_of_half_scales_is_found_with_the_layer(graph, cli):
    outcome = cli("ladder", graph, "--inputs", graph.with_name("x.npz"), "--target", "onnxruntime")
    assert outcome.code == 1
    assert "It becomes wrong in ONNX Runtime, basic level, at expand" in outcome.out
    assert "The disagreement goes away when expand_sum is given out" in outcome.out
    told = Ladder.model_validate_json(cli("ladder", graph, "--inputs", graph.with_name("x.npz"), "--target", "onnxruntime", "--json").out)
    found = rungs(told)
    basic, every = found["ONNX Runtime, basic level"], found["ONNX Runtime, all levels"]
    assert (basic.parts, basic.agreement.parting.layer, basic.before) == (True, half_scales.BROKEN, "the graph as written")
    assert (every.to_before.exact, every.same_as, every.agreement.agrees) == (True, basic.name, False)
    assert told.agrees is False


@pytest.mark.skipif("openvino" not in HERE, reason="OpenVINO is not installed")
def test_another_engine_computes_that_graph_as_it_is_meant(graph):
    found = rungs(quant.ladder(graph, inputs=graph.with_name("x.npz"), targets=["openvino"]))["openvino"]
    assert (found.agreement.agrees, found.parts) == (True, False)
    assert found.to_before.sqnr_db > 30


@pytest.mark.skipif("torch" not in HERE, reason="torch is not installed")
def test_an_engine_that_rounds_to_fp16_is_not_blamed_where_onnx_runtime_does_not(finished):
    made = finished.project.output / "artifacts" / "onnxruntime" / "fp16" / "model.onnx"
    found = quant.ladder(made, samples=512, targets=["torch"])
    assert found.agrees
    climbed = rungs(found)
    basic, torch, meant = (climbed[name].to_first for name in ("ONNX Runtime, basic level", "torch", "the graph as written"))
    assert basic.exact or basic.sqnr_db > 100  # it leaves the rounding out
    assert 60 < torch.sqnr_db < 75  # FP16 has 11 bits: 10 log10(3 * 4^11) = 71 dB a rounding of numbers of one magnitude
    assert 60 < meant.sqnr_db < 75


def test_rungs_stand_in_order_and_every_engine_that_is_here_has_one(sound):
    path, baseline = sound
    found = quant.ladder(path, baseline=baseline)
    fixed = ["FP32 as written", "FP32, ONNX Runtime, all levels", "the graph as written", "ONNX Runtime, basic level", "ONNX Runtime, all levels"]
    assert [rung.name for rung in found.rungs] == [*fixed, *HERE]
    assert found.agrees
    assert (found.first, found.output, found.inputs) == ("FP32 as written", "logits", "random, 16 rows in 2 batches")


def test_errors_are_those_of_the_outputs_themselves(sound, tmp_path):
    path, baseline = sound
    x = np.random.default_rng(0).uniform(0, 1, (8, 64)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    found = rungs(quant.ladder(path, baseline=baseline, inputs=tmp_path / "x.npz", targets=["onnxruntime"]))["the graph as written"]
    exact, quantized = (Runtime(p, optimize=False).run({"x": x})["logits"].astype(np.float64) for p in (baseline, path))
    assert found.to_first.sqnr_db == pytest.approx(10 * np.log10((exact**2).sum() / ((exact - quantized) ** 2).sum()))
    assert found.to_first.max_abs_error == pytest.approx(np.abs(exact - quantized).max())
    assert found.to_first.agreement == np.mean(exact.argmax(1) == quantized.argmax(1))
    assert found.to_first == found.to_before


def test_all_agree_is_0_and_random_inputs_are_said_to_be_random(sound, cli):
    outcome = cli("ladder", sound[0], "--target", "onnxruntime")
    assert outcome.code == 0
    assert "inputs: random, 16 rows in 2 batches" in outcome.out
    assert "All compute what the graph means (3 comparisons)." in outcome.out


def test_a_graph_of_half_floats_climbs_too(graph, tmp_path):
    proto = onnx.load(graph)
    del proto.graph.node[0]  # the Cast from FP32
    for node in proto.graph.node:
        node.input[:] = ["x" if name == "x_half" else name for name in node.input]
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    onnx.save(proto, tmp_path / "model.onnx")
    wide = ir.from_proto(onnx.load(graph))
    take_rounding_away(wide)
    ir.save(wide, tmp_path / "fp32.onnx")
    found = rungs(quant.ladder(tmp_path / "model.onnx", baseline=tmp_path / "fp32.onnx", inputs=graph.with_name("x.npz"), targets=["onnxruntime"]))
    assert found["the graph as written"].to_first.sqnr_db > 25


def test_an_engine_that_does_not_take_the_graph_is_said_to_refuse_it(sound, monkeypatch):
    def refuse(*_arguments, **_options):
        raise ModelError("no such kernel")

    monkeypatch.setattr(TARGETS.get("onnxruntime"), "session", refuse)
    found = quant.ladder(sound[0], targets=["onnxruntime"])
    assert (rungs(found)["onnxruntime"].status, rungs(found)["onnxruntime"].reason, found.agrees) == ("refused", "no such kernel", True)
    assert "refused" in ladder_text(found)


def test_an_engine_that_is_missing_is_said_to_be_missing_when_it_was_asked_for(sound, monkeypatch):
    from quant.targets import Availability

    gone = Availability(available=False, reason="it is not here", install="pip install it")
    monkeypatch.setattr(TARGETS.get("onnxruntime"), "available", lambda _: gone)
    found = quant.ladder(sound[0], targets=["onnxruntime"])
    assert (found.rungs[-1].status, found.rungs[-1].reason) == ("not available", "it is not here; pip install it")


def test_a_recipe_climbs_to_all_its_schemes_on_all_its_targets(finished, monkeypatch, cli):
    monkeypatch.setenv("QUANT_CACHE", str(finished.cache))
    outcome = cli("ladder", finished.project.recipe)
    assert outcome.code == 0
    found = rungs(Ladder.model_validate_json(cli("ladder", finished.project.recipe, "--json").out))
    for scheme in ("fp16", "int8-dynamic", "int8"):
        rung = found[f"{scheme} on onnxruntime"]
        assert rung.before == f"{scheme} for onnxruntime, as written"
        assert rung.agreement.agrees
        candidate = next(c for c in finished.run.report.candidates if c.scheme == scheme)
        assert rung.agreement == candidate.agreement


def test_a_recipe_lends_its_samples_and_its_model(sound, finished, monkeypatch):
    monkeypatch.setenv("QUANT_CACHE", str(finished.cache))
    found = quant.ladder(sound[0], recipe=finished.project.recipe, targets=["onnxruntime"], samples=6)
    assert (found.first, found.inputs) == ("FP32 as written", "evaluation samples of digits, 6 rows in 1 batch")


def test_a_graph_of_a_fixed_batch_is_lent_samples_in_such_batches(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("QUANT_CACHE", str(finished.cache))
    model = onnx.load(finished.project.folder / "digits.onnx")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    del model.graph.value_info[:]
    onnx.save(model, tmp_path / "two.onnx")
    found = quant.ladder(tmp_path / "two.onnx", recipe=finished.project.recipe, targets=["onnxruntime"], samples=6)
    assert (found.agrees, found.inputs) == (True, "evaluation samples of digits, 6 rows in 3 batches")
    with pytest.raises(DataError, match=r"5 rows cannot be cut into batches of 2, which the model is fixed to"):
        quant.ladder(tmp_path / "two.onnx", recipe=finished.project.recipe, targets=["onnxruntime"], samples=5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_where_nothing_is_finite_no_engine_is_said_to_agree(tmp_path, value):
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy")
    drawn = onnx.helper.make_graph([onnx.helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    onnx.save(onnx.helper.make_model(drawn, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10), tmp_path / "exp.onnx")
    np.savez(tmp_path / "in.npz", x=np.full((2, 3), value, np.float32))
    with pytest.raises(ModelError, match=r"exp.onnx: all that it gives .* is NaN, infinite or empty: there is nothing to compare\nhint: give other inputs"):
        quant.ladder(tmp_path / "exp.onnx", inputs=tmp_path / "in.npz", targets=["onnxruntime"])


def test_two_onnx_files_are_compared_by_climbing_from_the_one_to_the_other(sound, cli):
    outcome = cli("compare", sound[1], sound[0], "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["first"] == "FP32 as written"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"targets": ["onnxruntim"]}, QuantError, r"no such target: 'onnxruntim'\nhint: did you mean 'onnxruntime'"),
        ({"inputs": "x.npz", "recipe": "r.yaml"}, QuantError, r"inputs and a recipe are given"),
        ({"inputs": "nowhere.npz"}, DataError, r"^nowhere.npz: no such array file\nhint: give an .npz or .npy file"),
        ({"inputs": "."}, DataError, r"^\.: is a folder, not an array file"),
        ({"baseline": "nowhere.onnx"}, ModelError, r"no such model file"),
    ],
    ids=["target", "both", "inputs", "folder", "baseline"],
)
def test_what_is_asked_wrongly_is_told(sound, options, kind, message):
    with pytest.raises(kind, match=message):
        quant.ladder(sound[0], **options)


def test_wrong_input_ends_with_2(cli, tmp_path):
    assert cli("ladder", tmp_path / "nowhere.onnx").code == 2


def test_a_baseline_that_lacks_an_output_is_refused(sound, graph):
    with pytest.raises(ModelError, match=r"has no output 'logits', which the graph has|has no output 'embedding'"):
        quant.ladder(sound[0], baseline=graph)


def test_a_recipe_takes_no_baseline_and_no_target_that_it_does_not_name(finished, monkeypatch):
    monkeypatch.setenv("QUANT_CACHE", str(finished.cache))
    with pytest.raises(QuantError, match=r"a recipe brings its own baseline and inputs"):
        quant.ladder(finished.project.recipe, baseline="x.onnx")
    with pytest.raises(QuantError, match=r"the recipe has no target 'openvino'\nhint: known: onnxruntime"):
        quant.ladder(finished.project.recipe, targets=["openvino"])
