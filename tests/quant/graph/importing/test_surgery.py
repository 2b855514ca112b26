import onnx_ir as ir
from onnx import helper

from quant.graph.importing.surgery import bypass, has_one_use, name_outputs, rename_weight, weight_of

node = helper.make_node


def _graph(build, nodes, inputs, outputs, weights=None, **options):
    return ir.from_proto(build(nodes, inputs, outputs, weights, **options))


def test_an_output_keeps_its_name_when_its_node_is_bypassed(build):
    model = _graph(build, [node("Relu", ["x"], ["r"]), node("Identity", ["r"], ["y"])], {"x": [2]}, {"y": [2]})
    identity = list(model.graph)[1]
    assert bypass(identity.outputs[0], identity.inputs[0])
    model.graph.remove(identity, safe=True)
    assert [v.name for v in model.graph.outputs] == ["y"]
    assert [n.outputs[0].name for n in model.graph] == ["y"]


def test_an_output_that_passes_an_input_on_is_left_alone(build):
    model = _graph(build, [node("Identity", ["x"], ["y"])], {"x": [2]}, {"y": [2]})
    identity = next(iter(model.graph))
    assert not bypass(identity.outputs[0], identity.inputs[0])
    assert model.graph.outputs[0] is identity.outputs[0]


def test_two_outputs_of_one_value_both_stay(build):
    model = _graph(build, [node("Relu", ["x"], ["a"]), node("Identity", ["a"], ["b"])], {"x": [2]}, {"a": [2], "b": [2]})
    identity = list(model.graph)[1]
    assert not bypass(identity.outputs[0], identity.inputs[0])
    assert [v.name for v in model.graph.outputs] == ["a", "b"]


def test_outputs_get_names_that_inner_values_have(build, rng, reference):
    x = rng.normal(size=2).astype("float32")
    model = _graph(build, [node("Relu", ["x"], ["embedding"]), node("Neg", ["embedding"], ["n"])], {"x": [2]}, {"n": [2]})
    name_outputs(model.graph, ["embedding"])
    assert [v.name for v in model.graph.outputs] == ["embedding"]
    assert reference(model, {"x": x})[0].tolist() == (-x.clip(0)).tolist()


def test_outputs_may_trade_names(build, rng, reference):
    x = rng.normal(size=2).astype("float32")
    model = _graph(build, [node("Neg", ["x"], ["a"]), node("Abs", ["x"], ["b"])], {"x": [2]}, {"a": [2], "b": [2]})
    name_outputs(model.graph, ["b", "a"])
    assert [v.name for v in model.graph.outputs] == ["b", "a"]
    assert reference(model, {"x": x})[0].tolist() == (-x).tolist()


def test_an_output_that_is_an_input_or_another_output_gets_an_identity(build):
    model = _graph(build, [node("Neg", ["x"], ["a"])], {"x": [2]}, {"a": [2]})
    model.graph.outputs.extend([model.graph.outputs[0], model.graph.inputs[0]])
    name_outputs(model.graph, ["first", "second", "third"])
    assert [v.name for v in model.graph.outputs] == ["first", "second", "third"]
    assert [n.op_type for n in model.graph] == ["Neg", "Identity", "Identity"]
    assert [v.name for v in model.graph.inputs] == ["x"]


def test_a_weight_is_renamed_unless_the_name_is_taken(build, rng):
    model = _graph(build, [node("Add", ["x", "w"], ["y"])], {"x": [2]}, {"y": [2]}, {"w": rng.normal(size=2).astype("float32")})
    weight = model.graph.initializers["w"]
    assert not rename_weight(model.graph, weight, "y")
    assert rename_weight(model.graph, weight, "fc.weight")
    assert list(model.graph.initializers) == ["fc.weight"]
    assert next(iter(model.graph)).inputs[1].name == "fc.weight"


def test_a_weight_that_a_caller_may_override_is_no_weight(build, rng):
    weights = {"w": rng.normal(size=2).astype("float32")}
    model = _graph(build, [node("Add", ["x", "w"], ["y"])], {"x": [2]}, {"y": [2]}, weights, weights_are_inputs=True)
    assert weight_of(model.graph.initializers["w"]) is None


def test_a_value_read_twice_by_one_node_has_two_uses(build):
    model = _graph(build, [node("Relu", ["x"], ["r"]), node("Add", ["r", "r"], ["y"])], {"x": [2]}, {"y": [2]})
    assert not has_one_use(next(iter(model.graph)).outputs[0])
