import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from quant.graph.importing.clean_up import clean, remove_dropouts, remove_identities, remove_unused, trains
from quant.graph.model import write_model

node = helper.make_node


@pytest.fixture
def messy(build, rng):
    """Everything at once: constants, identities, a dropout, a transposed weight, a batch norm, dead ends."""
    weights = {
        "w": rng.normal(size=(4, 2, 1, 1)).astype("float32"),
        "fc": rng.normal(size=(3, 4)).astype("float32"),
        "g": np.float32([1, 2, 3, 4]),
        "z": np.zeros(4, np.float32),
        "o": np.ones(4, np.float32),
        "spare": np.ones(4, np.float32),
    }
    nodes = [
        node("Identity", ["x"], ["i"]),
        node("Conv", ["i", "w"], ["c"], name="stem"),
        node("BatchNormalization", ["c", "g", "z", "z", "o"], ["n"], name="bn"),
        node("Relu", ["n"], ["r"]),
        node("Dropout", ["r"], ["d"]),
        node("GlobalAveragePool", ["d"], ["p"], name="pool"),
        node("Constant", [], ["axes"], value_ints=[0, -1]),
        node("Reshape", ["p", "axes"], ["f"]),
        node("Transpose", ["fc"], ["t"]),
        node("MatMul", ["f", "t"], ["m"], name="head"),
        node("Neg", ["m"], ["dead"]),
        node("Identity", ["m"], ["y"]),
    ]
    return build(nodes, {"x": ["N", 2, 3, 3]}, {"y": ["N", 3]}, weights, opset=15)


def test_clean_gives_a_graph_of_layers_with_their_weights_and_the_same_outputs(messy, rng, reference):
    model = ir.from_proto(messy)
    x = rng.normal(size=(2, 2, 3, 3)).astype("float32")
    expected = reference(messy, {"x": x})[0]
    steps = clean(model)
    assert [(n.op_type, n.name) for n in model.graph] == [
        ("Conv", "stem"),
        ("Relu", "Relu_r"),
        ("GlobalAveragePool", "pool"),
        ("Reshape", "Reshape_f"),
        ("MatMul", "head"),
    ]
    assert {s.name: s.count for s in steps} == {
        "constants become weights": 1,
        "name nodes": 7,
        "remove identities": 2,
        "remove dropouts": 1,
        "fold constants": 1,
        "fold batch norms": 1,
        "remove unused": 5,
        "infer types": 4,
    }
    assert set(model.graph.initializers) == {"w", "fc", "axes", "stem.bias"}
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    assert proto.graph.input == messy.graph.input
    assert proto.graph.output == messy.graph.output
    np.testing.assert_allclose(reference(proto, {"x": x})[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_clean_twice_changes_nothing_more(messy):
    model = ir.from_proto(messy)
    clean(model)
    assert clean(model) == []


def test_clean_is_deterministic_to_the_byte(messy, tmp_path):
    files = []
    for name in "ab":
        model = ir.from_proto(messy)
        clean(model)
        files.append(write_model(model, tmp_path / name).read_bytes())
    assert files[0] == files[1]


def test_clean_lets_someone_look_after_each_step_that_changed_something(messy):
    seen = []
    steps = clean(ir.from_proto(messy), observe=lambda name, model: float(seen.append((name, len(model.graph))) or len(seen)))
    assert [name for name, _ in seen] == [s.name for s in steps]
    assert [s.max_abs_change for s in steps] == [float(i) for i in range(1, len(steps) + 1)]


def test_a_dropout_whose_mask_is_an_output_stays(build):
    types = {"m": TensorProto.BOOL}
    model = ir.from_proto(build([node("Dropout", ["x"], ["y", "m"])], {"x": [2]}, {"y": [2], "m": [2]}, types=types))
    assert remove_dropouts(model) == 0


def test_a_dropout_in_training_mode_is_seen(build):
    dropout = node("Dropout", ["x", "r", "t"], ["y"])
    for mode in (True, False):
        model = ir.from_proto(build([dropout], {"x": [2]}, {"y": [2]}, {"r": np.float32(0.5), "t": np.bool_(mode)}))
        assert trains(next(iter(model.graph))) is mode
    model = ir.from_proto(build([dropout], {"x": [2], "t": []}, {"y": [2]}, {"r": np.float32(0.5)}, types={"t": TensorProto.BOOL}))
    assert trains(next(iter(model.graph)))


def test_an_identity_that_a_nested_graph_reads_is_removed(build):
    branches = [
        helper.make_graph([node(op, ["i"], [f"o_{op}"])], op, [], [helper.make_tensor_value_info(f"o_{op}", TensorProto.FLOAT, [2])]) for op in ("Neg", "Abs")
    ]
    choose = node("If", ["p"], ["y"], then_branch=branches[0], else_branch=branches[1])
    proto = build([node("Relu", ["x"], ["r"]), node("Identity", ["r"], ["i"]), choose], {"x": [2], "p": []}, {"y": [2]}, types={"p": TensorProto.BOOL})
    model = ir.from_proto(proto)
    assert remove_identities(model) == 1
    feed = {"x": np.float32([-1, 2]), "p": np.bool_(True)}
    assert ReferenceEvaluator(ir.to_proto(model)).run(None, feed)[0].tolist() == ReferenceEvaluator(proto).run(None, feed)[0].tolist() == [0, -2]


def test_unused_nodes_go_with_all_that_only_they_need(build, rng):
    weights = {"w": rng.normal(size=2).astype("float32")}
    model = ir.from_proto(build([node("Add", ["x", "w"], ["a"]), node("Neg", ["a"], ["b"]), node("Abs", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, weights))
    assert remove_unused(model) == 3
    assert [n.op_type for n in model.graph] == ["Abs"]
    assert not model.graph.initializers


def test_operators_of_other_domains_are_kept(build):
    nodes = [node("Twist", ["x"], ["a"], domain="mine"), node("Identity", ["a"], ["b"]), node("Twist", ["b"], ["y"], domain="mine", angle=3)]
    model = ir.from_proto(build(nodes, {"x": [2]}, {"y": [2]}, domains=["mine"]))
    clean(model)
    assert [(n.domain, n.op_type) for n in model.graph] == [("mine", "Twist")] * 2
    assert list(model.graph)[1].attributes["angle"].as_int() == 3
