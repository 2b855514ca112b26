from quant.targets.nvidia.engine_host.layers import EngineLayer, from_json, layers_in_log, to_json

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


def test_a_log_without_a_list_has_no_layers():
    assert layers_in_log("INFO nothing here\n") == ()


def test_layers_are_read_back_as_they_were_written():
    assert from_json(to_json(LAYERS)) == LAYERS
