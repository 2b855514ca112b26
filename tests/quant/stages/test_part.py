"""Where an engine parts: engines broken on purpose, in one layer, and the one that is."""

import importlib.util
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.errors import TargetError
from quant.graph.lookout import Lookout
from quant.graph.model import add_initializer, constant, write_model
from quant.graph.plain import plain
from quant.graph.runtime import Runtime
from quant.stages.agree import Meaning, agree
from quant.stages.part import MOST_LOOKS

SPEC = importlib.util.spec_from_file_location("half_scales", Path(__file__).parents[1] / "graph" / "half_scales.py")
half_scales = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(half_scales)

FEEDS = [{"x": half_scales.inputs(8, seed)} for seed in (1, 2)]
LAYERS = ("stem", "expand", "depthwise", "project", "head")


@pytest.fixture(scope="module")
def meaning(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "model.onnx"
    onnx.save(half_scales.half_scales(), path)
    return Meaning.of(path, FEEDS)


def broken(model, layer):
    """`model` with another bias in `layer`."""
    node = next(n for n in model.graph if n.name == layer)
    bias = constant(node.inputs[2])
    node.replace_input_with(2, add_initializer(model.graph, f"{layer}_wrong", (bias.astype(np.float32) + 2).astype(bias.dtype)))
    return model


def right(model, folder):
    return plain(write_model(model, folder)).run


def wrong_in(layer, *, unless=()):
    """An engine that computes `layer` wrongly, unless one of the tensors `unless` is given out."""

    def load(model, folder):
        if {v.name for v in model.graph.outputs} & {f"{name}{end}" for name in unless for end in ("", "_out")}:
            return right(model, folder)
        return right(broken(model, layer), folder)

    return load


def compared(meaning, load, tmp_path):
    return agree(meaning, load(ir.load(meaning.graph), tmp_path), load, samples=16)


def test_an_engine_that_computes_as_written_agrees_exactly(meaning, tmp_path):
    found = compared(meaning, right, tmp_path)
    assert (found.agrees, found.parting, found.outputs[0].deviation_db) == (True, None, None)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_that_an_engine_computes_wrongly_is_named(meaning, layer, tmp_path):
    parting = compared(meaning, wrong_in(layer), tmp_path).parting
    assert parting.layer == layer
    assert parting.op == ("Gemm" if layer == "head" else "Conv")
    assert parting.tensor == ("logits_half" if layer == "head" else f"{layer}_sum")
    assert parting.vanishes == ()
    assert parting.deviation_db > (parting.noise_db or -80)


def test_what_lies_before_and_behind_is_told(meaning, tmp_path):
    parting = compared(meaning, wrong_in("depthwise"), tmp_path).parting
    assert (parting.before, parting.behind) == (("expand_clipped_dequantized",), ("depthwise_clipped",))


def test_a_fault_that_goes_away_when_looked_at_is_told_with_what_is_made_together(meaning, tmp_path):
    parting = compared(meaning, wrong_in("depthwise", unless=["depthwise_sum"]), tmp_path).parting
    assert (parting.layer, parting.within) == ("depthwise", ("depthwise", "depthwise_clipped"))
    assert parting.vanishes == ("depthwise_sum",)
    assert parting.tensor == "depthwise_clipped_dequantized"


def test_a_fault_that_goes_away_whatever_is_looked_at_is_told_of_the_output(meaning, tmp_path):
    everything = [watched.tensor for watched in Lookout(ir.load(meaning.graph)).tensors]
    parting = compared(meaning, wrong_in("stem", unless=everything), tmp_path).parting
    assert parting.tensor == "logits"
    assert set(parting.vanishes) == set(everything)
    assert parting.looks <= MOST_LOOKS


def test_an_engine_that_gives_out_nothing_but_the_outputs_leaves_the_place_open(meaning, tmp_path):
    def load(model, folder):
        if len(model.graph.outputs) > 1:
            raise TargetError("this engine gives out one tensor alone")
        return right(broken(model, "stem"), folder)

    parting = compared(meaning, load, tmp_path).parting
    assert (parting.tensor, parting.vanishes, parting.before) == ("logits", (), ())


def test_the_search_takes_few_looks_and_the_same_each_time(meaning, tmp_path):
    found = [compared(meaning, wrong_in("depthwise"), tmp_path / str(i)) for i in range(2)]
    assert found[0] == found[1]
    assert found[0].parting.looks <= 4


def chain(layers, branch):
    """`layers` products one after the other; beside them another way from `branch` to the end, which joins by addition."""
    random = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for i in range(layers):
        weights.append(onnx.numpy_helper.from_array((random.normal(size=(6, 6)) / 2).astype(np.float32), f"w{i}"))
        nodes.append(onnx.helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"], name=f"layer{i}"))
        nodes.append(onnx.helper.make_node("Tanh", [f"m{i}"], [f"t{i}"], name=f"tanh{i}"))
        value = f"t{i}"
    nodes.append(onnx.helper.make_node("Sin", [f"t{branch}"], ["side"], name="beside"))
    nodes.append(onnx.helper.make_node("Add", ["side", value], ["y"], name="join"))
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [8, 6]) for n in ("x", "y")]
    graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


@settings(max_examples=15)
@given(st.data())
def test_whichever_operation_of_a_graph_with_branches_is_wrong_is_found(tmp_path_factory, data):
    layers = data.draw(st.integers(1, 9))
    branch = data.draw(st.integers(0, layers - 1))
    folder = tmp_path_factory.mktemp("chain")
    onnx.save(chain(layers, branch), folder / "model.onnx")
    names = [node.name for node in ir.load(folder / "model.onnx").graph]
    victim = data.draw(st.sampled_from(names))

    def load(model, where):
        node = next(n for n in model.graph if n.name == victim)
        output = node.outputs[0]
        output.dtype = ir.DataType.FLOAT
        readers = list(output.uses())
        added = ir.node("Add", [output, add_initializer(model.graph, "error", np.float32(0.5))])
        added.outputs[0].name, added.outputs[0].dtype, added.outputs[0].shape = "off", ir.DataType.FLOAT, output.shape
        for reader, position in readers:
            reader.replace_input_with(position, added.outputs[0])
        model.graph.insert_after(node, added)
        for place, given_out in enumerate(model.graph.outputs):
            if given_out is output:
                model.graph.outputs[place] = added.outputs[0]
                output.name, added.outputs[0].name = f"{output.name}_right", output.name
        return right(model, where)

    feeds = [{"x": np.random.default_rng(1).normal(size=(8, 6)).astype(np.float32)}]
    found = agree(Meaning.of(folder / "model.onnx", feeds), load(ir.load(folder / "model.onnx"), folder / "engine"), load, samples=8)
    assert found.agrees is False
    assert found.parting.within[-1] == victim
    assert found.parting.looks <= MOST_LOOKS


@pytest.mark.skipif(not version("onnxruntime").startswith("1.32."), reason="other versions of ONNX Runtime may be right")
@pytest.mark.parametrize("optimize", ["basic", "extended", True])
def test_the_layer_whose_bias_onnxruntime_writes_in_half_floats_is_named(meaning, optimize, tmp_path):
    found = compared(meaning, lambda model, folder: Runtime(write_model(model, folder), optimize=optimize).run, tmp_path)
    assert found.agrees is False
    assert found.parting.layer == half_scales.BROKEN
    assert found.parting.before == ("stem_clipped_dequantized",)
    assert found.parting.vanishes == (f"{half_scales.BROKEN}_sum",)
