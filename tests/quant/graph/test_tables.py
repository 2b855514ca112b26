"""Tables: a Gather of rows of a constant matrix is a layer, and other Gathers are none."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.graph.layers import find_layers

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def graph(table=TABLE, *, axis=0, indices=None, name="embed"):
    initializers = [numpy_helper.from_array(table, "table")] + ([numpy_helper.from_array(indices, "i")] if indices is not None else [])
    inputs = [] if indices is not None else [helper.make_tensor_value_info("i", TensorProto.INT64, ["batch"])]
    node = helper.make_node("Gather", ["table", "i"], ["rows"], name=name, axis=axis)
    outputs = [helper.make_tensor_value_info("rows", helper.np_dtype_to_tensor_dtype(table.dtype), None)]
    return ir.from_proto(helper.make_model(helper.make_graph([node], "g", inputs, outputs, initializers)))


def test_a_table_is_a_layer_with_its_shape_and_without_channels_or_activations():
    (layer,) = find_layers(graph())
    assert (layer.name, layer.op, layer.weight_shape, layer.parameters) == ("embed", "Gather", (4, 3), 12)
    assert (layer.weight, layer.channel_axis, layer.activations, layer.quantized_already) == (0, None, (), False)


def test_a_table_without_a_name_goes_by_what_it_makes():
    model = graph(name="")
    assert [layer.name for layer in find_layers(model)] == ["Gather_rows"] == [node.name for node in model.graph]


@pytest.mark.parametrize(
    "other",
    [
        {"axis": 1},
        {"table": TABLE.reshape(2, 2, 3)},
        {"table": TABLE[0]},
        {"table": TABLE.astype(np.int64)},
        {"table": TABLE.astype(np.float16)},
        {"indices": np.array([1])},
    ],
    ids=["of columns", "three axes", "a vector", "integers", "half", "fixed rows"],
)
def test_other_gathers_are_no_layers(other):
    assert find_layers(graph(**other)) == ()
