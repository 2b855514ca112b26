from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from quant.errors import ModelError
from quant.graph.importing.opset import MINIMUM_OPSET, opset_for, raise_opset
from quant.graph.model import opset, read_model, write_model

node = helper.make_node
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def _run(model, feed):
    """ONNX Runtime with its optimizations off."""
    proto = model if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feed)


def _case(op, *, version, weights=None, inputs=("x",), outputs=("y",), x=(2, 3, 4, 4), **attributes):
    made = node(op, list(inputs), list(outputs), name="it", **attributes)
    return pytest.param((made, version, weights or {}, x), id="-".join([op, str(attributes.get("mode", "")), str(version)]))


BN = {"s": np.float32([1, 2, 3]), "b": np.float32([3, 2, 1]), "m": np.float32([0, 1, 2]), "v": np.float32([1, 2, 4])}

GRID = np.linspace(-0.9, 0.9, 2 * 2 * 2 * 2, dtype=np.float32).reshape(2, 2, 2, 2)
LSTM = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 8, 2)


@pytest.mark.parametrize("wanted", [13, 19, 21, 23])
@pytest.mark.parametrize(
    "case",
    [
        _case("Softmax", version=9, axis=1),
        _case("LogSoftmax", version=11, axis=2),
        _case("Softmax", version=11),
        _case("Hardmax", version=12, axis=1),
        _case("Upsample", version=7, scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"),
        _case("Upsample", version=9, inputs=("x", "k"), weights={"k": np.float32([1, 1, 2, 2])}, mode="nearest"),
        _case("Upsample", version=9, inputs=("x", "k"), weights={"k": np.float32([1, 1, 2, 2])}, mode="linear"),
        _case("Resize", version=10, inputs=("x", "k"), weights={"k": np.float32([1, 1, 2, 2])}, mode="linear"),
        _case("Upsample", version=9, inputs=("x", "k"), weights={"k": np.float32([1, 1, 1.5, 2.5])}, mode="nearest"),
        _case("Resize", version=10, inputs=("x", "k"), weights={"k": np.float32([1, 1, 0.6, 0.6])}, mode="nearest", x=(1, 1, 7, 7)),
        _case("Resize", version=10, inputs=("x", "k"), weights={"k": np.float32([1, 1, 0.6, 1.5])}, mode="linear", x=(1, 1, 7, 7)),
        _case("Resize", version=11, inputs=("x", "roi", "k"), weights={"roi": np.float32([]), "k": np.float32([1, 1, 1.5, 1.5])}, mode="cubic"),
        _case("Split", version=11, outputs=("y", "z"), axis=2),
        _case("Split", version=13, outputs=("y", "z"), axis=2),
        _case("GridSample", version=16, inputs=("x", "g"), weights={"g": GRID}, mode="bilinear"),
        _case(
            "GroupNormalization", version=18, inputs=("x", "s", "b"), weights={"s": np.float32([1, 2]), "b": np.float32([3, 4])}, num_groups=2, x=(2, 4, 3, 3)
        ),
        _case("LpPool", version=11, kernel_shape=[2, 2], strides=[2, 2]),
        _case("AveragePool", version=11, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, pads=[1, 1, 1, 1], count_include_pad=1, x=(1, 1, 6, 6)),
        _case("AveragePool", version=11, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, x=(1, 1, 6, 6)),
        _case("MaxPool", version=8, kernel_shape=[3, 3], strides=[2, 2], x=(1, 1, 6, 6)),
        _case("Pad", version=11, inputs=("x", "p"), weights={"p": np.int64([0, 0, 1, 1, 0, 0, 1, 1])}, mode="reflect"),
        _case("LSTM", version=7, inputs=("x", "w", "r"), weights={"w": LSTM, "r": LSTM}, hidden_size=2, x=(3, 2, 2)),
        _case("InstanceNormalization", version=6, inputs=("x", "s", "b"), weights=BN),
        _case("Sum", version=6, inputs=("x", "s"), weights={"s": np.ones((2, 3, 4, 4), np.float32)}),
        _case("Gelu", version=20, approximate="tanh"),
        _case("PRelu", version=7, inputs=("x", "k"), weights={"k": np.float32([0.3])}),
        _case("TopK", version=9, x=(2, 6), k=2, outputs=("y", "i")),
        _case("Resize", version=10, inputs=("x", "k"), weights={"k": np.float32([1, 1, 2, 2])}, mode="nearest"),
        _case("BatchNormalization", version=7, inputs=("x", "s", "b", "m", "v"), weights=BN, epsilon=1e-3),
        _case("BatchNormalization", version=9, inputs=("x", "s", "b", "m", "v"), weights=BN, epsilon=1e-3),
        _case("Dropout", version=7, ratio=0.3),
        _case("Dropout", version=10, ratio=0.3),
        _case("Squeeze", version=9, x=(2, 1, 3), axes=[1]),
        _case("Unsqueeze", version=11, axes=[0, 2]),
        _case("ReduceSum", version=11, axes=[1], keepdims=0),
        _case("ReduceMean", version=9, axes=[2, 3], keepdims=1),
        _case("Clip", version=7, min=-0.5, max=0.5),
        _case("Pad", version=9, pads=[0, 0, 1, 1, 0, 0, 1, 1], value=2.0),
        _case("Slice", version=9, starts=[1], ends=[3], axes=[2]),
        _case("Gemm", version=7, x=(2, 3), inputs=("x", "w", "c"), weights={"w": np.ones((3, 4), np.float32), "c": np.float32([1, 2, 3, 4])}),
        _case("AveragePool", version=10, kernel_shape=[2, 2], strides=[2, 2]),
    ],
)
def test_an_operator_means_the_same_after_the_raise(build, rng, case, wanted):
    made, version, weights, x = case
    proto = build([made], {"x": list(x)}, {"y": None}, weights, opset=version)
    feed = {"x": rng.normal(size=x).astype("float32")}
    model = raise_opset(ir.from_proto(proto), wanted)
    assert opset(model) == max(version, wanted)
    for found, expected in zip(_run(model, feed), _run(proto, feed), strict=True):
        rounding = 4 * np.finfo(np.float32).eps * np.abs(expected).max()  # kernels of other versions sum in another order
        np.testing.assert_allclose(found, expected, rtol=0, atol=rounding)
    assert model.graph.inputs[0].name == "x"
    assert model.graph.outputs[0].name == "y"


def test_a_group_norm_of_unknown_channels_is_an_error_not_another_model(build):
    norm = node("GroupNormalization", ["x", "s", "b"], ["y"], name="gn", num_groups=2)
    proto = build([norm], {"x": None}, {"y": None}, {"s": np.float32([1, 2]), "b": np.float32([3, 4])}, opset=18)
    with pytest.raises(ModelError, match=r"operator GroupNormalization \(node 'gn'\) has no fixed channels"):
        raise_opset(ir.from_proto(proto), 21)


def test_roi_align_keeps_its_old_positions(build, rng):
    weights = {"r": np.float32([[0, 0, 3, 3]]), "i": np.int64([1])}
    proto = build([node("RoiAlign", ["x", "r", "i"], ["y"], output_height=2, output_width=2)], {"x": [2, 1, 5, 5]}, {"y": None}, weights, opset=10)
    feed = {"x": rng.normal(size=(2, 1, 5, 5)).astype("float32")}
    np.testing.assert_allclose(_run(raise_opset(ir.from_proto(proto), 21), feed)[0], _run(proto, feed)[0], rtol=1e-6)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_a_real_structure_of_operator_set_9_gives_the_same_outputs(name, rng):
    path = LIGHT / f"light_{name}.onnx"
    before, model = onnx.load(path), raise_opset(read_model(path), MINIMUM_OPSET)
    feed = {str(model.graph.inputs[0].name): rng.normal(size=(1, 3, 224, 224)).astype("float32")}
    np.testing.assert_allclose(_run(model, feed)[0], _run(before, feed)[0], rtol=1e-5)
    named = {n.name for n in before.graph.node if n.name}
    assert named <= {n.name for n in model.graph}
    assert ir.to_proto(model).graph.output == before.graph.output


def test_large_weights_stay_where_they_are(build, rng, tmp_path):
    w = rng.normal(size=(40, 40)).astype("float32")
    nodes = [node("Dropout", ["x"], ["d"]), node("MatMul", ["d", "w"], ["m"], name="fc"), node("Softmax", ["m"], ["y"])]
    path = write_model(ir.from_proto(build(nodes, {"x": ["N", 40]}, {"y": ["N", 40]}, {"w": w}, opset=9)), tmp_path)
    model = raise_opset(read_model(path), 21)
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), w)
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert model.graph.outputs[0].shape[0].value == "N"


def test_weights_that_are_listed_as_inputs_are_weights_afterwards(build, rng):
    weights = {"w": rng.normal(size=(3, 400)).astype("float32"), "b": np.float32([0.5])}
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])]
    proto = build(nodes, {"x": ["N", 3]}, {"y": ["N", 400]}, weights, opset=7, weights_are_inputs=True)
    feed = {"x": rng.normal(size=(2, 3)).astype("float32")}
    model = raise_opset(ir.from_proto(proto), 13)
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert set(model.graph.initializers) == {"w", "b"}
    np.testing.assert_allclose(_run(model, feed)[0], _run(proto, feed)[0], rtol=1e-6)


def test_a_graph_nested_in_an_if_is_raised_too(build, rng):
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "ab"]
    branches = [
        helper.make_graph([node("ReduceSum", ["x"], ["a"], axes=[1], keepdims=1)], "then", [], [info[0]]),
        helper.make_graph([node("Softmax", ["x"], ["b"], axis=1)], "else", [], [info[1]]),
    ]
    choose = node("If", ["p"], ["y"], then_branch=branches[0], else_branch=branches[1], name="choose")
    proto = build([choose], {"x": [2, 3, 4], "p": []}, {"y": None}, opset=11, types={"p": TensorProto.BOOL})
    model = raise_opset(ir.from_proto(proto), 13)
    for p in (True, False):
        feed = {"x": rng.normal(size=(2, 3, 4)).astype("float32"), "p": np.array(p)}
        np.testing.assert_allclose(_run(model, feed)[0], _run(proto, feed)[0], rtol=1e-6)


def test_a_model_that_is_new_enough_is_given_back(build):
    model = ir.from_proto(build([node("Relu", ["x"], ["y"])], {"x": [1]}, {"y": [1]}, opset=17))
    assert raise_opset(model, 13) is model
    assert opset(model) == 17


def test_metadata_and_operators_of_other_domains_survive(build):
    proto = build(
        [node("Relu", ["x"], ["a"], name="r"), node("Twist", ["a"], ["y"], domain="mine", name="t")], {"x": [1]}, {"y": [1]}, opset=9, domains=["mine"]
    )
    helper.set_model_props(proto, {"character": "abc"})
    entry = proto.graph.node[0].metadata_props.add()
    entry.key, entry.value = "scope", "body"
    model = raise_opset(ir.from_proto(proto), 13)
    assert model.metadata_props["character"] == "abc"
    assert model.graph.opset_imports == {"": 13, "mine": 1}
    assert {n.name: dict(n.metadata_props) for n in model.graph} == {"r": {"scope": "body"}, "t": {}}


def test_what_the_converter_cannot_do_names_operator_and_node(build):
    proto = build([node("Relu", ["x"], ["a"]), node("Experimental", ["a"], ["y"], name="odd")], {"x": [1]}, {"y": None}, opset=9)
    with pytest.raises(ModelError, match=r"cannot be raised from ONNX operator set 9 to 13: operator Experimental \(node 'odd'\): ONNX has no such operator"):
        raise_opset(ir.from_proto(proto), 13)
    norm = node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], name="body.bn", spatial=0)
    proto = build([norm], {"x": [1, 3]}, {"y": None}, BN, opset=7)
    with pytest.raises(ModelError, match=r"operator BatchNormalization \(node 'body.bn'\): .*spatial"):
        raise_opset(ir.from_proto(proto), 13)


@pytest.mark.parametrize(
    ("formats", "expected"),
    [(["fp32"], 13), (["int8", "fp16"], 13), (["fp8"], 19), (["fp8", "int4"], 21), (["uint16"], 21), (["fp4"], 23), ([], 13)],
    ids=str,
)
def test_the_oldest_operator_set_that_holds_the_formats(formats, expected):
    assert opset_for(formats) == expected
