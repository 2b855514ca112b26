import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.graph.importing.folding import FREE_ELEMENTS, fold_constants

node = helper.make_node


def _model(build, nodes, weights, *, x=(2, 3), y=None, **options):
    return ir.from_proto(build(nodes, {"x": list(x)}, {"y": y}, weights, **options))


@pytest.mark.parametrize(
    ("before", "shape"),
    [
        ([node("Transpose", ["w"], ["t"], perm=[1, 0])], (4, 3)),
        ([node("Identity", ["w"], ["i"]), node("Transpose", ["i"], ["t"])], (4, 3)),
        ([node("Cast", ["w"], ["c"], to=TensorProto.FLOAT), node("Transpose", ["c"], ["t"])], (4, 3)),
        ([node("Reshape", ["w", "s"], ["t"])], (12,)),
    ],
    ids=["transpose", "identity", "cast", "reshape"],
)
def test_a_weight_behind_other_operators_comes_to_its_layer_under_its_own_name(build, rng, reference, before, shape):
    w = rng.normal(size=shape).astype("float32")
    x = rng.normal(size=(2, 3)).astype("float32")
    model = _model(build, [*before, node("MatMul", ["x", "t"], ["y"])], {"w": w, "s": np.int64([3, 4])})
    expected = reference(model, {"x": x})[0]
    assert fold_constants(model) == len(before)
    layer = next(n for n in model.graph if n.op_type == "MatMul")
    assert layer.inputs[1].name == "w"
    assert layer.inputs[1].is_initializer()
    np.testing.assert_array_equal(reference(model, {"x": x})[0], expected)


def test_a_weight_that_others_use_too_stays_as_it_is(build, rng, reference):
    w = rng.normal(size=(3, 3)).astype("float32")
    x = rng.normal(size=(2, 3)).astype("float32")
    model = _model(build, [node("Transpose", ["w"], ["t"]), node("MatMul", ["x", "t"], ["m"]), node("MatMul", ["m", "w"], ["y"])], {"w": w})
    assert fold_constants(model) == 1
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), w)
    np.testing.assert_array_equal(model.graph.initializers["t"].const_value.numpy(), w.T)
    np.testing.assert_allclose(reference(model, {"x": x})[0], x @ w.T @ w, rtol=1e-5)


def test_what_would_grow_beyond_its_input_is_not_folded(build, rng):
    rows = FREE_ELEMENTS + 1
    nodes = [node("Expand", ["w", "s"], ["e"]), node("Add", ["x", "e"], ["y"])]
    model = _model(build, nodes, {"w": rng.normal(size=(1, 3)).astype("float32"), "s": np.int64([rows, 3])}, x=("N", 3))
    assert fold_constants(model) == 0


def test_a_shape_of_a_terabyte_is_never_computed(build):
    shape = np.int64([1 << 20, 1 << 20])
    model = _model(build, [node("ConstantOfShape", ["s"], ["c"]), node("MatMul", ["x", "c"], ["y"])], {"s": shape}, x=(1, 1 << 20))
    assert fold_constants(model) == 0


def test_a_layers_weight_made_of_one_number_becomes_a_weight(build):
    half = numpy_helper.from_array(np.float32([0.5]))
    model = _model(build, [node("ConstantOfShape", ["s"], ["c"], value=half), node("MatMul", ["x", "c"], ["y"])], {"s": np.int64([200, 200])}, x=(1, 200))
    assert fold_constants(model) == 1
    assert model.graph.initializers["c"].const_value.numpy().sum() == 20_000


def test_quantized_weights_stay_quantized(build):
    weights = {"q": np.zeros((200, 200), np.int8), "s": np.float32(0.1), "z": np.int8(0)}
    nodes = [node("DequantizeLinear", ["q", "s", "z"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    assert fold_constants(_model(build, nodes, weights, x=(1, 200))) == 0
    nodes = [node("Cast", ["q"], ["w"], to=TensorProto.FLOAT), node("MatMul", ["x", "w"], ["y"])]
    assert fold_constants(_model(build, nodes, weights, x=(1, 200))) == 0


def test_layers_of_constants_are_not_folded(build, rng):
    weights = {"a": rng.normal(size=(3, 3)).astype("float32"), "b": rng.normal(size=(3, 3)).astype("float32")}
    assert fold_constants(_model(build, [node("MatMul", ["a", "b"], ["w"]), node("MatMul", ["x", "w"], ["y"])], weights)) == 0


def test_arithmetic_on_shapes_is_folded(build, rng, reference):
    nodes = [
        node("Concat", ["a", "b"], ["c"], axis=0),
        node("Mul", ["c", "two"], ["d"]),
        node("Gather", ["d", "i"], ["e"]),
        node("Range", ["zero", "limit", "one"], ["r"]),
        node("Add", ["e", "r"], ["s"]),
        node("Reshape", ["x", "s"], ["y"]),
    ]
    scalars = {"zero": np.int64(0), "limit": np.int64(2), "one": np.int64(1)}
    model = _model(build, nodes, {"a": np.int64([1]), "b": np.int64([1]), "two": np.int64([2]), "i": np.int64([1, 0]), **scalars})
    assert fold_constants(model) == 5
    x = rng.normal(size=(2, 3)).astype("float32")
    np.testing.assert_array_equal(reference(model, {"x": x})[0], x)
