"""Graphs that no exporter should write: a finding, or a message, and never a bug of ours."""

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from quant.errors import QuantError


def _proto(nodes, weights=(), opset=21):
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


OPS = """QuantizeLinear DequantizeLinear Conv MatMul Gemm Softmax Cast Concat ReduceMean Pow Where Transpose LayerNormalization AveragePool""".split()  # noqa: SIM905
NAMES = st.sampled_from(["x", "", "s", "z", "t0", "t1", "t2"])
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["axis", "block_size", "to", "perm", "transB", "group", "output_dtype"]),
    st.sampled_from([-9, 0, 1, 3, 10, 99, 1.5, "text", [0, 1]]),
    max_size=2,
)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(OPS), st.lists(NAMES, max_size=3), ATTRIBUTES), min_size=1, max_size=4), st.sampled_from([9, 13, 21, 23]))
def test_any_wiring_of_operators_with_any_attributes_can_be_checked(tmp_path_factory, drawn, opset):
    from quant.lint.check import check

    nodes = []
    for number, (op, inputs, attributes) in enumerate(drawn):
        made = {name for name in inputs if name.startswith("t") and int(name[1:]) >= number}
        nodes.append(helper.make_node(op, [name for name in inputs if name not in made], [f"t{number}"], **attributes))
    nodes.append(helper.make_node("Identity", [f"t{len(drawn) - 1}"], ["y"]))
    weights = [helper.make_tensor("s", TensorProto.FLOAT, [2], [0.1, 0.2]), helper.make_tensor("z", TensorProto.INT8, [], [1])]
    path = tmp_path_factory.mktemp("any") / "model.onnx"
    onnx.save(_proto(nodes, weights, opset), path)
    found = check(path, capability="8.6", mend_to=path.with_name("mended.onnx"))
    assert found.mended is not None
    onnx.load(path.with_name("mended.onnx"))


def test_a_stored_tensor_that_is_too_short_is_told_by_name(lint):
    short = helper.make_tensor("s", TensorProto.FLOAT, [2], [0.1, 0.2])
    short.ClearField("float_data")
    short.raw_data = b"\0\0"
    with pytest.raises(QuantError, match="'s' is damaged"):
        lint(_proto([helper.make_node("QuantizeLinear", ["x", "s"], ["y"])], [short]))


def test_functions_of_the_model_are_looked_into(lint):
    body = [helper.make_node("QuantizeLinear", ["a", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["b"])]
    function = helper.make_function("local", "Pair", ["a", "s", "z"], ["b"], body, [helper.make_opsetid("", 21)])
    weights = [helper.make_tensor("s", TensorProto.FLOAT, [], [0.1]), helper.make_tensor("z", TensorProto.INT8, [], [3])]
    model = _proto([helper.make_node("Pair", ["x", "s", "z"], ["y"], domain="local")], weights)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    assert [(f.rule, f.op) for f in lint(model).findings] == [("Q01", "QuantizeLinear")]


def test_branches_are_looked_into(lint):
    def branch(zero, name):
        zeros = helper.make_tensor("z", TensorProto.INT8, [], [zero])
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], [name])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4])], [zeros])

    choose = helper.make_node("If", ["c"], ["y"], then_branch=branch(0, "then"), else_branch=branch(5, "else"))
    model = _proto([choose], [helper.make_tensor("s", TensorProto.FLOAT, [], [0.1])])
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    assert [(f.rule, f.detail) for f in lint(model).findings] == [("Q01", "zero point is 5")]


def test_weights_in_external_data_are_read_and_a_mended_copy_keeps_its_own(tmp_path, drawing):
    from quant.lint.check import check

    g = drawing(21)
    g.input("x", [8, 64], "f32")
    pair = g.dequantize(g.quantize("x", zero=128, dtype="u8"), zero=128, dtype="u8")
    g.output(g.node("MatMul", [pair, g.coded((64, 64), 1)]), [8, 64], "f32")
    onnx.save(g.model(), tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert {f.rule for f in check(tmp_path / "model.onnx").findings} == {"Q01"}
    done = check(tmp_path / "model.onnx", mend_to=tmp_path / "mended.onnx")
    assert done.findings == ()
    assert (tmp_path / "mended.onnx.data").exists()
    with pytest.raises(QuantError, match="overwrite"):
        check(tmp_path / "model.onnx", mend_to=tmp_path / "model.onnx")
    (tmp_path / "weights.bin").unlink()
    onnx.checker.check_model(str(tmp_path / "mended.onnx"))
