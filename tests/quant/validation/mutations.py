"""Ways to break a delivered run, each with the layer, tensor or file that validation must name; a test file loads this one by its path."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from quant.core.documents import Artifact, Audit, PrecisionPlan
from quant.report.load import load_report
from quant.report.write import write_report

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = "artifacts/onnxruntime/int8"
MODEL = f"{PLACE}/model.onnx"


class Mutation(NamedTuple):
    """One way to break a run.

    Args:
        apply: Breaks the run in the folder; the second argument holds other runs to take things from.
        named: A layer, a tensor or a file that a finding must be about.
    """

    apply: Callable[[Path, Path], None]
    named: str


MUTATIONS: dict[str, Mutation] = {}


def mutation(named):
    """Register a mutation under the words of its function's name."""

    def add(function):
        MUTATIONS[function.__name__.replace("_", " ")] = Mutation(function, named)
        return function

    return add


def on_graph(named):
    """A mutation that changes the artifact's ONNX model in place."""

    def add(function):
        def apply(folder, _others):
            model = onnx.load(folder / MODEL)
            before = model.SerializeToString()
            function(model, {t.name: t for t in model.graph.initializer}, {n.name: n for n in model.graph.node})
            assert model.SerializeToString() != before, "the mutation changes nothing"
            onnx.save(model, folder / MODEL)

        apply.__name__ = function.__name__
        return mutation(named)(apply)

    return add


def rehash(folder):
    """Make everything that says something of files say what they are now, as somebody would who wants to hide a change."""
    place = folder / PLACE
    artifact = Artifact.load(place / "artifact.json")
    files = {name: _digest(place / name) for name in artifact.files if (place / name).exists()}
    size = sum((place / name).stat().st_size for name in files)
    artifact = artifact.model_copy(update={"files": files, "size_bytes": size})
    artifact.save(place / "artifact.json")
    report = load_report(folder)
    plan = PrecisionPlan.load(folder / "plans/onnxruntime/int8.json")
    audit = Audit.load(folder / "plans/onnxruntime/int8.audit.json")
    told = {"files": files, "size_bytes": size, "plan": plan.layers, "audit": audit.rows}
    rows = [row.model_copy(update=told) if row.artifact == PLACE else row for row in report.candidates]
    write_report(report.model_copy(update={"candidates": tuple(rows)}).with_digest(), folder)
    manifest = folder / "manifest.json"
    manifest.unlink()
    told = {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest.write_text(json.dumps({"version": 1, "files": told}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _put(tensors, name, change):
    array = numpy_helper.to_array(tensors[name])
    tensors[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(array)).reshape(array.shape).astype(array.dtype), name))


def _remove(model, name):
    model.graph.node.remove(next(node for node in model.graph.node if node.name == name))


@on_graph("dense/second")
def a_scale_is_doubled(_model, tensors, _nodes):
    _put(tensors, "dense/second_weight_scale", lambda scale: scale * 2)


@on_graph("dense/first")
def a_scale_of_an_activation_is_doubled(_model, tensors, _nodes):
    _put(tensors, "flat_scale", lambda scale: scale * 2)


@on_graph("dense/second")
def the_axis_is_swapped(_model, _tensors, nodes):
    next(a for a in nodes["dense/second_weight_DequantizeLinear"].attribute if a.name == "axis").i = 0


@on_graph("dense/third")
def the_weights_of_one_layer_are_zeroed(_model, tensors, _nodes):
    _put(tensors, "dense/third_weight_quantized", np.zeros_like)


@on_graph("dense/second")
def the_quantizers_of_one_layer_are_removed(model, _tensors, nodes):
    _remove(model, "first.out_QuantizeLinear")
    _remove(model, "first.out_DequantizeLinear")
    nodes["dense/second"].input[0] = "first.out"


@on_graph("embedding")
def the_outputs_are_reordered(model, _tensors, _nodes):
    outputs = list(model.graph.output)
    del model.graph.output[:]
    model.graph.output.extend(reversed(outputs))


@mutation("conv")
def fp32_weights_lie_behind_an_int8_name(folder, _others):
    shutil.copyfile(folder / "artifacts/onnxruntime/fp32/model.onnx", folder / MODEL)


@mutation(MODEL)
def the_file_is_truncated(folder, _others):
    data = (folder / MODEL).read_bytes()
    (folder / MODEL).write_bytes(data[: len(data) // 2])


@on_graph(MODEL)
def another_operator_set_is_named(model, _tensors, _nodes):
    next(o for o in model.opset_import if o.domain == "").version += 1


@mutation("flat")
def it_was_calibrated_on_noise(folder, others):
    for name in (PLACE, "calibration", "plans"):
        shutil.rmtree(folder / name)
        shutil.copytree(others / "noise" / name, folder / name)


@mutation("dense/second")
def the_plan_is_stale(folder, _others):
    path = folder / "plans/onnxruntime/int8.json"
    plan = PrecisionPlan.load(path)
    layers = [c.model_copy(update={"format": "fp32", "reason": "kept"}) if c.layer == "dense/second" else c for c in plan.layers]
    plan.model_copy(update={"layers": tuple(layers)}).save(path)


@on_graph("dense/last")
def a_scale_is_not_a_number(_model, tensors, _nodes):
    _put(tensors, "dense/last_weight_scale", lambda scale: np.where(np.arange(len(scale)) == 3, np.nan, scale))


@on_graph("conv")
def a_zero_point_is_off_by_one(_model, tensors, _nodes):
    _put(tensors, "x_zero_point", lambda zero: zero + 1)


@on_graph("dense/third")
def the_weights_of_two_layers_are_swapped(_model, tensors, _nodes):
    one, other = (numpy_helper.to_array(tensors[f"dense/{name}_weight_quantized"]) for name in ("second", "third"))
    _put(tensors, "dense/second_weight_quantized", lambda _: other)
    _put(tensors, "dense/third_weight_quantized", lambda _: one)


@on_graph("dense/last")
def the_bias_of_a_layer_is_dropped(_model, _tensors, nodes):
    del nodes["dense/last"].input[2]


@on_graph("x")
def an_input_is_renamed(model, _tensors, nodes):
    model.graph.input[0].name = nodes["x_QuantizeLinear"].input[0] = "image"


@on_graph("x")
def an_open_dimension_is_fixed(model, _tensors, _nodes):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


@mutation("plans/onnxruntime/int8.audit.json")
def the_audit_is_edited(folder, _others):
    path = folder / "plans/onnxruntime/int8.audit.json"
    path.write_text(path.read_text(encoding="utf-8").replace("QGemm", "QLinearMatMul"), encoding="utf-8")


@mutation("report.json")
def the_report_is_edited(folder, _others):
    report = load_report(folder)
    row = report.candidates[0]
    better = row.model_copy(update={"metrics": {name: value + 0.01 for name, value in row.metrics.items()}})
    report.model_copy(update={"candidates": (better,)}).save(folder / "report.json")


@mutation("conv")
def it_is_the_engine_of_another_model(folder, others):
    shutil.copyfile(others / "other" / MODEL, folder / MODEL)


@on_graph("dense/second")
def the_weights_of_a_layer_are_transposed(_model, tensors, _nodes):
    _put(tensors, "dense/second_weight_quantized", lambda weights: weights.T)


@on_graph("dense/first")
def one_weight_is_off_by_one_code(_model, tensors, _nodes):
    def change(weights):
        changed = weights.copy()
        changed[7, 11] += 1 if changed[7, 11] < 127 else -1
        return changed

    _put(tensors, "dense/first_weight_quantized", change)


@on_graph("dense/third")
def an_activation_between_two_layers_is_taken_out(model, _tensors, nodes):
    _remove(model, "relu/second")
    nodes["dense/second"].output[0] = "second.out"


@on_graph("conv")
def a_hidden_branch_is_added(model, _tensors, nodes):
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.0), "trigger"))
    model.graph.node.insert(0, helper.make_node("Add", ["x", "trigger"], ["x_seen"], name="seen"))
    nodes["x_QuantizeLinear"].input[0] = "x_seen"


@mutation("flat")
def the_calibration_table_is_edited(folder, _others):
    path = folder / "calibration/table.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    table["tensors"]["flat"]["maximum"] *= 1.5
    path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@mutation("recipe.yaml")
def the_limit_of_the_gate_is_raised(folder, _others):
    path = folder / "recipe.yaml"
    changed = path.read_text(encoding="utf-8").replace("max_drop: 0.05", "max_drop: 0.5")
    path.write_text(changed, encoding="utf-8")
    report = load_report(folder)
    report.model_copy(update={"recipe": changed}).with_digest().save(folder / "report.json")


@mutation(f"{PLACE}/artifact.json")
def the_artifact_tells_its_engine_something_else(folder, _others):
    path = folder / PLACE / "artifact.json"
    Artifact.load(path).model_copy(update={"options": {"provider": "cuda"}}).save(path)


@mutation("artifacts/onnxruntime/fp32/model.onnx")
def the_baseline_beside_it_is_another(folder, others):
    shutil.copyfile(others / "other/artifacts/onnxruntime/fp32/model.onnx", folder / "artifacts/onnxruntime/fp32/model.onnx")
