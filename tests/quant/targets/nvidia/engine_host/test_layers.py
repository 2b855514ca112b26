import json

import pytest

from quant.targets.nvidia.engine_host.layers import EngineLayer, from_json, layers_in_inspection, layers_in_log, to_json

LOG = """VERBOSE Registering layer: conv for ONNX node: conv
Name: not in the list, LayerType: gemm, Inputs: [], Constants: [], Outputs: [], TacticName: , StreamId: 0, Metadata: [ONNX Layer: conv]
VERBOSE Layers:
Name: conv_myl0_1, LayerType: correlation, Inputs: [ { Name: a, Dimensions: [1,32,16,16], Datatype: Int8, Format: (NHWC) Channel major format }], \
Constants: [ { Name: w, Datatype: Int8 }, { Name: s, Datatype: Float }], Outputs: [ { Name: b, Datatype: Half }], TacticName: t, StreamId: 0, \
Metadata: [ONNX Layer: conv][ONNX Layer: blocks[0].bn]__gemm_from_conv1x1
Name: __myl_Cast_2, LayerType: kgen, Inputs: [ { Name: b, Datatype: Half }], Constants: [], Outputs: [ { Name: y, Datatype: Float }], TacticName: u, StreamId: 0

I/O Tensors:
 Name: x, IOMode: Input, DataType: Float, Dimensions: [4,32]
Name: after, LayerType: gemm, Inputs: [], Constants: [], Outputs: [], TacticName: , StreamId: 0, Metadata: [ONNX Layer: conv]
"""
LAYERS = (
    EngineLayer("conv_myl0_1", "correlation", ("Int8",), ("Int8", "Float"), ("Half",), ("conv", "blocks[0].bn")),
    EngineLayer("__myl_Cast_2", "kgen", ("Half",), (), ("Float",), ()),
)


def test_layers_are_read_from_the_list_within_the_log_and_from_nowhere_else():
    assert layers_in_log(LOG) == LAYERS


@pytest.mark.parametrize("name", ["a b/<c>", "a, LayerType: x", "]", "a\u2028b", "a\x85b", "a\x0cb", "a\x1cb"])
def test_names_of_nodes_and_tensors_may_hold_anything_but_a_new_line(name):
    found = layers_in_log(LOG.replace("ONNX Layer: conv]", f"ONNX Layer: {name}]").replace("Name: b,", f"Name: {name},"))
    assert found[0].nodes == (name, "blocks[0].bn")
    assert [(layer.kind, layer.inputs, layer.outputs) for layer in found] == [(layer.kind, layer.inputs, layer.outputs) for layer in LAYERS]


def test_a_log_without_a_list_has_no_layers():
    assert layers_in_log("INFO nothing here\n") == ()


def test_layers_are_read_back_as_they_were_written():
    assert from_json(to_json(LAYERS)) == LAYERS


def inspection(layers):
    return json.dumps({"Layers": layers, "Bindings": ["x", "y"]})


def tensor(words, *, version):
    """A tensor as version 10 or 11 of the engine inspector tells of it."""
    common = {"Name": "t", "Location": "Device", "Dimensions": [1, 32, 16, 16]}
    return {**common, "Format/Datatype": words} if version == 10 else {**common, "Strides": [1], "Datatype": words, "Format": "(NHWC) Channel major format"}


# Version 10 tells type and layout in one string of words; version 11 each for itself.
def test_the_inspector_of_version_10_is_read():
    quantized, half = "Thirty-two wide channel vectorized row major Int8 format", "Channel major FP16 format where channel % 8 == 0"
    conv = {
        "Name": "conv + relu",
        "LayerType": "CaskConvolution",
        "Inputs": [tensor(quantized, version=10)],
        "Outputs": [tensor(half, version=10)],
        "ParameterType": "Convolution",
        "Weights": {"Type": "Int8", "Count": 9216},
        "Bias": {"Type": "Float", "Count": 32},
        "TacticName": "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32",
        "Metadata": "[ONNX Layer: conv]\x1e[ONNX Layer: relu]",
    }
    cast = {"Name": "cast", "LayerType": "Reformat", "Inputs": [tensor("Row major linear FP32", version=10)], "Outputs": [tensor("Half", version=10)]}
    assert layers_in_inspection(inspection([conv, cast])) == (
        EngineLayer("conv + relu", "CaskConvolution", ("Int8",), ("Int8",), ("Half",), ("conv", "relu")),
        EngineLayer("cast", "Reformat", ("Float",), (), ("Half",), ()),
    )


def test_the_inspector_of_version_11_is_read():
    gemm = {
        "Name": "mm_myl0_1",
        "LayerType": "gemm",
        "Inputs": [tensor("FP8", version=11)],
        "Outputs": [tensor("BFloat16", version=11)],
        "Constants": [tensor("FP8", version=11), tensor("Float", version=11)],
        "TacticName": "sm89_xmma_gemm_e4m3bf16_e4m3f32",
        "StreamId": 0,
        "Metadata": "[ONNX Layer: mm][ONNX Layer: w_dq]",
    }
    assert layers_in_inspection(inspection([gemm])) == (EngineLayer("mm_myl0_1", "gemm", ("FP8",), ("FP8", "Float"), ("BFloat16",), ("mm", "w_dq")),)


@pytest.mark.parametrize(
    ("words", "spelled"),
    [
        ("Row major linear BF16 format", "BFloat16"),
        ("Row major INT4 format", "Int4"),
        ("FP4E2M1", "FP4E2M1"),
        ("Int64", "Int64"),
        ("N/A due to dynamic shapes", "N/A due to dynamic shapes"),
    ],
)
def test_types_are_spelled_in_one_way_and_what_is_not_known_is_left_as_it_is(words, spelled):
    layer = {"Name": "x", "LayerType": "kgen", "Inputs": [tensor(words, version=10)], "Outputs": []}
    assert layers_in_inspection(inspection([layer]))[0].inputs == (spelled,)


def test_an_engine_that_tells_only_names_is_refused():
    with pytest.raises(ValueError, match=r"tells only the names of its layers: it was not built with ProfilingVerbosity\.DETAILED"):
        layers_in_inspection(inspection(["conv + relu"]))
