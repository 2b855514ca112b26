import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from quant.graph.importing.prepare import free_weights, inline_functions, lift_constants, name_nodes, prepare

node = helper.make_node


def test_weights_that_old_files_list_as_inputs_are_taken_out(build, rng):
    proto = build([node("Add", ["x", "w"], ["y"])], {"x": [2]}, {"y": [2]}, {"w": rng.normal(size=2).astype("float32")}, weights_are_inputs=True)
    model = ir.from_proto(proto)
    assert free_weights(model) == 1
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert model.ir_version >= 4


def test_constants_of_every_kind_become_weights(build, reference):
    nodes = [
        node("Constant", [], ["a"], value=numpy_helper.from_array(np.float32([1, 2]))),
        node("Constant", [], ["b"], value_float=3.0),
        node("Constant", [], ["c"], value_floats=[4.0, 5.0]),
        node("Constant", [], ["d"], value_ints=[2]),
        node("Sum", ["x", "a", "b", "c"], ["s"]),
        node("Reshape", ["s", "d"], ["y"]),
    ]
    proto = build(nodes, {"x": [2]}, {"y": [2]})
    model = ir.from_proto(proto)
    assert lift_constants(model) == 4
    assert list(model.graph.initializers) == ["a", "b", "c", "d"]
    assert reference(model, {"x": np.float32([0, 0])})[0].tolist() == [8, 10]


def test_a_constant_that_is_an_output_stays(build):
    proto = build([node("Constant", [], ["c"], value_floats=[1.0]), node("Neg", ["x"], ["y"])], {"x": [1]}, {"y": [1], "c": [1]})
    model = ir.from_proto(proto)
    assert lift_constants(model) == 0
    assert [n.op_type for n in model.graph] == ["Constant", "Neg"]


def test_nodes_without_a_name_get_one_of_operator_and_output_and_names_stay(build):
    nodes = [node("Neg", ["x"], ["a"]), node("Neg", ["a"], ["b"], name="mine"), node("Neg", ["b"], ["c"], name="mine"), node("Neg", ["c"], ["y"], name="Neg_a")]
    model = ir.from_proto(build(nodes, {"x": [1]}, {"y": [1]}))
    assert name_nodes(model) == 2
    assert [n.name for n in model.graph] == ["Neg_a_2", "mine", "Neg_c", "Neg_a"]
    assert name_nodes(model) == 0


def test_functions_of_the_model_are_put_in_place(build, rng, reference):
    proto = build([node("Twice", ["x"], ["y"], domain="mine")], {"x": [2]}, {"y": [2]}, domains=["mine"])
    body = helper.make_function("mine", "Twice", ["i"], ["o"], [node("Add", ["i", "i"], ["o"])], [helper.make_opsetid("", 13)])
    proto.functions.append(body)
    model = ir.from_proto(proto)
    x = rng.normal(size=2).astype("float32")
    assert inline_functions(model) == 1
    assert [n.op_type for n in model.graph] == ["Add"]
    assert reference(model, {"x": x})[0].tolist() == (x + x).tolist()


def test_prepare_leaves_a_graph_nested_in_an_if_alone(build):
    inner = [
        helper.make_graph([node("Constant", [], [f"c{i}"], value_floats=[float(i)]), node("Add", ["x", f"c{i}"], [f"o{i}"])], f"b{i}", [], [_info(f"o{i}")])
        for i in (0, 1)
    ]
    proto = build([node("If", ["p"], ["y"], then_branch=inner[0], else_branch=inner[1])], {"x": [1], "p": []}, {"y": [1]}, types={"p": TensorProto.BOOL})
    model = ir.from_proto(proto)
    prepare(model)
    branch = next(iter(model.graph)).attributes["then_branch"].as_graph()
    assert [n.op_type for n in branch] == ["Constant", "Add"]
    assert [n.name for n in branch] == ["Constant_c0", "Add_o0"]
    onnx.checker.check_model(ir.to_proto(model))


def _info(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])
