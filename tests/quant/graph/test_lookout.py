"""Looking into a graph: which tensors, in what order, and what is given out."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quant.graph.lookout import Lookout, give_out
from quant.graph.runtime import Runtime

HERE = Path(__file__).parent


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


half_scales, zoo = load("half_scales"), load("zoo")


def test_tensors_are_seen_in_the_order_in_which_they_are_computed():
    seen = Lookout(ir.from_proto(half_scales.half_scales()))
    assert [watched.tensor for watched in seen.tensors] == [
        *["x_half_dequantized", "stem_sum", "stem_clipped_dequantized", "expand_sum", "expand_clipped_dequantized"],
        *["depthwise_sum", "depthwise_clipped_dequantized", "project_sum", "project_clipped_dequantized", "pooled", "flat_dequantized", "logits_half"],
    ]


def test_what_made_a_tensor_is_looked_for_beyond_quantizing_and_casts():
    seen = {watched.tensor: watched for watched in Lookout(ir.from_proto(half_scales.half_scales())).tensors}
    assert (seen["expand_sum"].layer, seen["expand_sum"].op, seen["expand_sum"].before) == ("expand", "Conv", ("stem_clipped_dequantized",))
    assert seen["expand_clipped_dequantized"].op == "Clip"
    assert seen["expand_clipped_dequantized"].before == ("expand_sum",)
    assert seen["expand_clipped_dequantized"].behind == ("depthwise",)
    output = Lookout(ir.from_proto(half_scales.half_scales())).output("logits")
    assert (output.layer, output.before) == ("head", ("logits_half",))


def test_weights_and_integers_are_not_looked_at():
    names = {watched.tensor for watched in Lookout(ir.from_proto(half_scales.half_scales())).tensors}
    assert not [name for name in names if name.endswith(("_weight", "_codes"))]


@pytest.mark.parametrize("graph", zoo.ZOO)
def test_what_can_be_looked_at_can_be_given_out_and_the_outputs_stay(graph):
    proto = zoo.ZOO[graph]()
    model = ir.from_proto(proto)
    tensors = [watched.tensor for watched in Lookout(model).tensors]
    given = give_out(model, tensors)
    assert sorted(given.values()) == sorted(tensors)
    feed = zoo.feed(proto)
    found, before = Runtime(model, optimize=False).run(feed), Runtime(ir.from_proto(proto), optimize=False).run(feed)
    assert list(found)[: len(before)] == list(before)
    for name, array in before.items():
        np.testing.assert_array_equal(found[name], array)
    assert all(found[name].dtype == np.float32 for name in given)


def test_half_floats_are_given_out_as_whole_ones():
    model = ir.from_proto(half_scales.half_scales())
    Lookout(model)
    given = give_out(model, ["expand_sum"])
    found = Runtime(model, optimize=False).run({"x": half_scales.inputs(2)})
    (name,) = given
    assert (found[name].dtype, found[name].shape) == (np.float32, (2, 8, 6, 6))


def test_what_a_nested_graph_captures_lies_before_it():
    seen = {watched.tensor: watched for watched in Lookout(ir.from_proto(zoo.ZOO["an if that captures"]())).tensors}
    assert set(seen["picked"].before) == {"flag", "h"}
